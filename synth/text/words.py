"""Name the languages that can be spelled out, and their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from synth.text.languages import base_of

Forms = tuple[str, str]  # of one, of several

# What follows an abbreviation decides whether it is one: a capital, a digit, or nothing special.
CAPITAL, DIGIT, ANY = "capital", "digit", "any"


@dataclass(frozen=True)
class Words:
    """Hold one language's words.

    `money` joins an amount's two parts from {major}, {minor} and {minor_number}. `abbreviations`
    are what is said and what must follow. `numbered` are words that a Roman numeral follows, and
    `numbered_after` those that it stands before; `titles` stand before a name and its numeral.
    """

    group: str
    decimal: str
    months: tuple[str, ...]
    percent: str
    currencies: Mapping[str, tuple[Forms, Forms]]
    money: str
    units: Mapping[str, Forms]
    abbreviations: Mapping[str, tuple[str, str]]
    numbered: tuple[str, ...]
    numbered_after: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    scales: Mapping[str, str] = field(default_factory=dict)


def units(text: str) -> dict[str, Forms]:
    """Return units by their signs, from `sign one/several; sign one/several`."""
    signs = (" ".join(part.split()).partition(" ") for part in text.split(";"))
    return {sign: _forms(words) for sign, _, words in signs}


def currencies(text: str) -> dict[str, tuple[Forms, Forms]]:
    """Return currencies by their signs, from `sign one/several, cent/cents; sign ...`."""
    signs = (" ".join(part.split()).partition(" ") for part in text.split(";"))
    parts = ((sign, *words.partition(", ")) for sign, _, words in signs)
    return {sign: (_forms(major), _forms(minor)) for sign, major, _, minor in parts}


def _forms(words: str) -> Forms:
    one, _, several = words.partition("/")
    return one, several or one


# ruff: noqa: RUF001  # look-alikes of ASCII are what languages are written in


FR = Words(
    group=" \u00a0\u202f.",
    decimal=",",
    months=("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre",
            "octobre", "novembre", "décembre"),
    percent="pour cent",
    currencies=currencies("""
        € euro/euros, centime/centimes; EUR euro/euros, centime/centimes;
        $ dollar/dollars, cent/cents; USD dollar américain/dollars américains, cent/cents;
        £ livre/livres, penny/pence; CHF franc suisse/francs suisses, centime/centimes
    """),
    money="{major} {minor_number}",
    units=units("""
        km kilomètre/kilomètres; km/h kilomètres à l'heure; m mètre/mètres;
        cm centimètre/centimètres; mm millimètre/millimètres; km² kilomètre carré/kilomètres carrés;
        m² mètre carré/mètres carrés; kg kilogramme/kilogrammes; g gramme/grammes;
        mg milligramme/milligrammes; l litre/litres; ml millilitre/millilitres;
        °C degré Celsius/degrés Celsius; °F degré Fahrenheit/degrés Fahrenheit; ° degré/degrés;
        Hz hertz; kHz kilohertz; MHz mégahertz; GHz gigahertz; Mo mégaoctet/mégaoctets;
        Go gigaoctet/gigaoctets; kW kilowatt/kilowatts; kWh kilowattheure/kilowattheures
    """),
    abbreviations={
        "M.": ("Monsieur", CAPITAL), "MM.": ("Messieurs", CAPITAL), "Mme": ("Madame", CAPITAL),
        "Mmes": ("Mesdames", CAPITAL), "Mlle": ("Mademoiselle", CAPITAL),
        "Dr": ("Docteur", CAPITAL), "Pr": ("Professeur", CAPITAL), "etc.": ("et cetera", ANY),
        "p. ex.": ("par exemple", ANY), "c.-à-d.": ("c'est-à-dire", ANY),
        "av. J.-C.": ("avant Jésus-Christ", ANY), "apr. J.-C.": ("après Jésus-Christ", ANY),
        "n°": ("numéro", DIGIT), "p.": ("page", DIGIT), "chap.": ("chapitre", DIGIT),
        "vol.": ("volume", DIGIT),
    },
    numbered=("chapitre", "partie", "tome", "acte", "scène", "livre", "volume", "section"),
    numbered_after=("siècle", "siècles"),
    titles=("Louis", "Henri", "Charles", "Philippe", "Napoléon", "pape", "roi"),
)  # fmt: skip
ES = Words(
    group=". \u00a0\u202f",
    decimal=",",
    months=("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre",
            "octubre", "noviembre", "diciembre"),
    percent="por ciento",
    currencies=currencies("""
        € euro/euros, céntimo/céntimos; EUR euro/euros, céntimo/céntimos;
        $ dólar/dólares, centavo/centavos; USD dólar/dólares, centavo/centavos;
        £ libra/libras, penique/peniques
    """),
    money="{major} con {minor}",
    units=units("""
        km kilómetro/kilómetros; km/h kilómetros por hora; m metro/metros;
        cm centímetro/centímetros; mm milímetro/milímetros;
        km² kilómetro cuadrado/kilómetros cuadrados; m² metro cuadrado/metros cuadrados;
        kg kilogramo/kilogramos; g gramo/gramos; mg miligramo/miligramos; l litro/litros;
        ml mililitro/mililitros; °C grado Celsius/grados Celsius;
        °F grado Fahrenheit/grados Fahrenheit; ° grado/grados; Hz hercio/hercios;
        MHz megahercio/megahercios; GHz gigahercio/gigahercios; MB megabyte/megabytes;
        GB gigabyte/gigabytes; kW kilovatio/kilovatios
    """),
    abbreviations={
        "Sr.": ("Señor", CAPITAL), "Sra.": ("Señora", CAPITAL), "Srta.": ("Señorita", CAPITAL),
        "Dr.": ("Doctor", CAPITAL), "Dra.": ("Doctora", CAPITAL), "Prof.": ("Profesor", CAPITAL),
        "D.": ("Don", CAPITAL), "Dña.": ("Doña", CAPITAL), "Ud.": ("usted", ANY),
        "Uds.": ("ustedes", ANY), "etc.": ("etcétera", ANY), "p. ej.": ("por ejemplo", ANY),
        "núm.": ("número", DIGIT), "n.º": ("número", DIGIT), "pág.": ("página", DIGIT),
        "cap.": ("capítulo", DIGIT), "vol.": ("volumen", DIGIT),
        "EE. UU.": ("Estados Unidos", ANY), "Avda.": ("Avenida", CAPITAL),
    },
    numbered=("capítulo", "tomo", "acto", "parte", "libro", "volumen", "escena", "siglo"),
)  # fmt: skip
IT = Words(
    group=". \u00a0\u202f'’",
    decimal=",",
    months=("gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto",
            "settembre", "ottobre", "novembre", "dicembre"),
    percent="per cento",
    currencies=currencies("""
        € euro, centesimo/centesimi; EUR euro, centesimo/centesimi;
        $ dollaro/dollari, centesimo/centesimi; USD dollaro/dollari, centesimo/centesimi;
        £ sterlina/sterline, penny/pence
    """),
    money="{major} e {minor_number}",
    units=units("""
        km chilometro/chilometri; km/h chilometri all'ora; m metro/metri; cm centimetro/centimetri;
        mm millimetro/millimetri; km² chilometro quadrato/chilometri quadrati;
        m² metro quadrato/metri quadrati; kg chilogrammo/chilogrammi; g grammo/grammi;
        mg milligrammo/milligrammi; l litro/litri; ml millilitro/millilitri;
        °C grado Celsius/gradi Celsius; °F grado Fahrenheit/gradi Fahrenheit; ° grado/gradi;
        Hz hertz; MHz megahertz; GHz gigahertz; MB megabyte; GB gigabyte; kW chilowatt
    """),
    abbreviations={
        "Sig.": ("Signor", CAPITAL), "sig.": ("signor", CAPITAL), "Sig.ra": ("Signora", CAPITAL),
        "sig.ra": ("signora", CAPITAL), "Dott.": ("Dottor", CAPITAL),
        "dott.": ("dottor", CAPITAL), "Dott.ssa": ("Dottoressa", CAPITAL),
        "Prof.": ("Professor", CAPITAL), "prof.": ("professor", CAPITAL),
        "Ing.": ("Ingegner", CAPITAL), "Avv.": ("Avvocato", CAPITAL), "ecc.": ("eccetera", ANY),
        "p. es.": ("per esempio", ANY), "ad es.": ("ad esempio", ANY), "pag.": ("pagina", DIGIT),
        "n.": ("numero", DIGIT), "cap.": ("capitolo", DIGIT), "vol.": ("volume", DIGIT),
    },
    numbered=("capitolo", "parte", "atto", "volume", "libro", "tomo", "scena"),
    numbered_after=("secolo",),
)  # fmt: skip
PT = Words(
    group=". \u00a0\u202f",
    decimal=",",
    months=("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho", "agosto",
            "setembro", "outubro", "novembro", "dezembro"),
    percent="por cento",
    currencies=currencies("""
        € euro/euros, cêntimo/cêntimos; EUR euro/euros, cêntimo/cêntimos;
        R$ real/reais, centavo/centavos; BRL real/reais, centavo/centavos;
        US$ dólar/dólares, centavo/centavos; $ dólar/dólares, centavo/centavos;
        USD dólar/dólares, centavo/centavos
    """),
    money="{major} e {minor}",
    units=units("""
        km quilômetro/quilômetros; km/h quilômetros por hora; m metro/metros;
        cm centímetro/centímetros; mm milímetro/milímetros;
        km² quilômetro quadrado/quilômetros quadrados; m² metro quadrado/metros quadrados;
        kg quilograma/quilogramas; g grama/gramas; mg miligrama/miligramas; l litro/litros;
        ml mililitro/mililitros; °C grau Celsius/graus Celsius; °F grau Fahrenheit/graus Fahrenheit;
        ° grau/graus; Hz hertz; MHz mega-hertz; GHz giga-hertz; MB megabyte/megabytes;
        GB gigabyte/gigabytes; kW quilowatt/quilowatts
    """),
    abbreviations={
        "Sr.": ("Senhor", CAPITAL), "Sra.": ("Senhora", CAPITAL), "Dr.": ("Doutor", CAPITAL),
        "Dra.": ("Doutora", CAPITAL), "Prof.": ("Professor", CAPITAL),
        "Profa.": ("Professora", CAPITAL), "Av.": ("Avenida", CAPITAL), "etc.": ("et cetera", ANY),
        "p. ex.": ("por exemplo", ANY), "pág.": ("página", DIGIT), "n.º": ("número", DIGIT),
        "nº": ("número", DIGIT), "cap.": ("capítulo", DIGIT), "vol.": ("volume", DIGIT),
    },
    numbered=("capítulo", "parte", "tomo", "volume", "ato", "cena", "livro", "século"),
)  # fmt: skip


# ruff: noqa: RUF001  # look-alikes of ASCII are what languages are written in


EN = Words(
    group=",",
    decimal=".",
    months=("January", "February", "March", "April", "May", "June", "July", "August", "September",
            "October", "November", "December"),
    percent="percent",
    currencies=currencies("""
        $ dollar/dollars, cent/cents; USD US dollar/US dollars, cent/cents;
        € euro/euros, cent/cents; EUR euro/euros, cent/cents; £ pound/pounds, penny/pence;
        GBP pound/pounds, penny/pence; ¥ yen; CHF Swiss franc/Swiss francs, centime/centimes
    """),
    money="{major} and {minor}",
    units=units("""
        km kilometer/kilometers; km/h kilometers per hour; mph miles per hour; m meter/meters;
        cm centimeter/centimeters; mm millimeter/millimeters;
        km² square kilometer/square kilometers; m² square meter/square meters;
        kg kilogram/kilograms; g gram/grams; mg milligram/milligrams; lb pound/pounds;
        lbs pound/pounds; oz ounce/ounces; ft foot/feet; l liter/liters; L liter/liters;
        ml milliliter/milliliters; mL milliliter/milliliters; °C degree Celsius/degrees Celsius;
        °F degree Fahrenheit/degrees Fahrenheit; ° degree/degrees; Hz hertz; kHz kilohertz;
        MHz megahertz; GHz gigahertz; kB kilobyte/kilobytes; MB megabyte/megabytes;
        GB gigabyte/gigabytes; TB terabyte/terabytes; kW kilowatt/kilowatts;
        kWh kilowatt hour/kilowatt hours; ms millisecond/milliseconds
    """),
    abbreviations={
        "Mr.": ("Mister", ANY), "Mrs.": ("Missus", ANY), "Ms.": ("Miz", ANY),
        "Dr.": ("Doctor", CAPITAL), "Prof.": ("Professor", CAPITAL), "St.": ("Saint", CAPITAL),
        "Capt.": ("Captain", CAPITAL), "Gen.": ("General", CAPITAL), "Lt.": ("Lieutenant", CAPITAL),
        "Col.": ("Colonel", CAPITAL), "Sgt.": ("Sergeant", CAPITAL), "Rev.": ("Reverend", CAPITAL),
        "Jr.": ("Junior", ANY), "Sr.": ("Senior", ANY), "Mt.": ("Mount", CAPITAL),
        "No.": ("number", DIGIT), "Nos.": ("numbers", DIGIT), "vol.": ("volume", DIGIT),
        "Vol.": ("Volume", DIGIT), "p.": ("page", DIGIT), "pp.": ("pages", DIGIT),
        "Fig.": ("Figure", DIGIT), "fig.": ("figure", DIGIT), "ch.": ("chapter", DIGIT),
        "etc.": ("et cetera", ANY), "e.g.": ("for example", ANY), "i.e.": ("that is", ANY),
        "vs.": ("versus", ANY), "approx.": ("approximately", ANY), "dept.": ("department", ANY),
    },
    numbered=("chapter", "part", "book", "volume", "act", "scene", "section", "appendix", "canto",
              "World War", "article", "phase"),
    titles=("King", "Queen", "Pope", "Emperor", "Tsar", "Czar", "Louis", "Henry", "Charles",
            "Edward", "George", "Elizabeth", "Napoleon", "Richard", "William", "James"),
    scales={name: name for name in ("thousand", "million", "billion", "trillion")}
    | {"m": "million", "bn": "billion", "k": "thousand"},
)  # fmt: skip
DE = Words(
    group=". \u00a0\u202f'’",
    decimal=",",
    months=("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September",
            "Oktober", "November", "Dezember"),
    percent="Prozent",
    currencies=currencies("""
        € Euro, Cent; EUR Euro, Cent; $ Dollar, Cent; USD US-Dollar, Cent; £ Pfund, Penny/Pence;
        CHF Franken, Rappen; ¥ Yen
    """),
    money="{major} {minor_number}",
    units=units("""
        km Kilometer; km/h Kilometer pro Stunde; m Meter; cm Zentimeter; mm Millimeter;
        km² Quadratkilometer; m² Quadratmeter; kg Kilogramm; g Gramm; mg Milligramm; t Tonne/Tonnen;
        l Liter; ml Milliliter; °C Grad Celsius; °F Grad Fahrenheit; ° Grad; Hz Hertz;
        kHz Kilohertz; MHz Megahertz; GHz Gigahertz; kB Kilobyte; MB Megabyte; GB Gigabyte;
        TB Terabyte; kW Kilowatt; kWh Kilowattstunde/Kilowattstunden; ms Millisekunde/Millisekunden
    """),
    abbreviations={
        "z. B.": ("zum Beispiel", ANY), "z.B.": ("zum Beispiel", ANY), "d. h.": ("das heißt", ANY),
        "d.h.": ("das heißt", ANY), "u. a.": ("unter anderem", ANY), "u.a.": ("unter anderem", ANY),
        "usw.": ("und so weiter", ANY), "bzw.": ("beziehungsweise", ANY), "ca.": ("circa", ANY),
        "evtl.": ("eventuell", ANY), "ggf.": ("gegebenenfalls", ANY), "inkl.": ("inklusive", ANY),
        "vgl.": ("vergleiche", ANY), "z. T.": ("zum Teil", ANY), "etc.": ("et cetera", ANY),
        "Dr.": ("Doktor", CAPITAL), "Prof.": ("Professor", CAPITAL), "Hr.": ("Herr", CAPITAL),
        "Fr.": ("Frau", CAPITAL), "St.": ("Sankt", CAPITAL), "Nr.": ("Nummer", DIGIT),
        "Bd.": ("Band", DIGIT), "Kap.": ("Kapitel", DIGIT), "S.": ("Seite", DIGIT),
        "Abb.": ("Abbildung", DIGIT), "Mio.": ("Millionen", ANY), "Mrd.": ("Milliarden", ANY),
    },
    numbered=("Kapitel", "Teil", "Band", "Buch", "Akt", "Szene", "Anhang", "Abschnitt"),
    titles=("König", "Königin", "Papst", "Kaiser", "Kaiserin", "Ludwig", "Friedrich", "Heinrich",
            "Karl", "Wilhelm", "Elisabeth"),
    scales={"Mio.": "Millionen", "Millionen": "Millionen", "Mrd.": "Milliarden",
            "Milliarden": "Milliarden"},
)  # fmt: skip
NL = Words(
    group=". \u00a0\u202f",
    decimal=",",
    months=("januari", "februari", "maart", "april", "mei", "juni", "juli", "augustus",
            "september", "oktober", "november", "december"),
    percent="procent",
    currencies=currencies("""
        € euro, cent; EUR euro, cent; $ dollar, cent; USD dollar, cent; £ pond, penny/pence
    """),
    money="{major} {minor_number}",
    units=units("""
        km kilometer; km/h kilometer per uur; m meter; cm centimeter; mm millimeter;
        km² vierkante kilometer; m² vierkante meter; kg kilogram; g gram; mg milligram; l liter;
        ml milliliter; °C graden Celsius; °F graden Fahrenheit; ° graad/graden; Hz hertz;
        MHz megahertz; GHz gigahertz; MB megabyte; GB gigabyte; kW kilowatt
    """),
    abbreviations={
        "bijv.": ("bijvoorbeeld", ANY), "bv.": ("bijvoorbeeld", ANY),
        "d.w.z.": ("dat wil zeggen", ANY), "enz.": ("enzovoort", ANY), "etc.": ("et cetera", ANY),
        "o.a.": ("onder andere", ANY), "m.a.w.": ("met andere woorden", ANY),
        "dhr.": ("de heer", CAPITAL), "mevr.": ("mevrouw", CAPITAL), "mw.": ("mevrouw", CAPITAL),
        "dr.": ("dokter", CAPITAL), "prof.": ("professor", CAPITAL), "St.": ("Sint", CAPITAL),
        "nr.": ("nummer", DIGIT), "blz.": ("bladzijde", DIGIT), "ca.": ("circa", ANY),
    },
    numbered=("hoofdstuk", "deel", "boek", "akte", "scène"),
)  # fmt: skip


WORDS: Mapping[str, Words] = {
    "en": EN, "de": DE, "fr": FR, "es": ES, "it": IT, "nl": NL, "pt": PT,
}  # fmt: skip


def has_rules(language: str) -> bool:
    """Say whether texts in a language can be spelled out."""
    return base_of(language) in WORDS
