"""Check language tags, and name the languages that can be spelled out, with their words."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what languages are written in

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Tags are checked by the grammar of BCP 47 (RFC 5646), and written the usual way.
MAX_TAG_CHARS = 35
# Also in the API's description, so without flags and names; groups 2 and 3 are script and region.
TAG_PATTERN = (
    "[A-Za-z]{2,3}(-[A-Za-z]{3}){0,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?"
    "(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*(-[0-9A-WYZa-wyz](-[A-Za-z0-9]{2,8})+)*"
    "(-[Xx](-[A-Za-z0-9]{1,8})+)?"
)
_SCRIPT, _REGION = 2, 3


def language_tag(text: str) -> str | None:
    """Return a tag in its usual spelling, such as `pt-BR` or `zh-Hant`; None where it is none."""
    found = re.fullmatch(TAG_PATTERN, text) if len(text) <= MAX_TAG_CHARS else None
    if found is None:
        return None
    tag = text.lower()
    for group, spell in ((_SCRIPT, str.title), (_REGION, str.upper)):
        if found[group]:
            start, end = found.span(group)
            tag = tag[:start] + spell(tag[start:end]) + tag[end:]
    return tag


def base_of(tag: str) -> str:
    """Return the language of a tag such as `en-GB`, in lower case."""
    return tag.partition("-")[0].lower()


Forms = tuple[str, str]  # of one, of several


@dataclass(frozen=True, kw_only=True)
class Words:
    """Hold one language's words.

    `money` joins an amount's two parts from {major}, {minor} and {minor_number}. Abbreviations are
    what is said, by what must follow: a capital, a digit, or nothing special. `numbered` are words
    that a Roman numeral follows, and `numbered_after` those that it stands before; `titles` stand
    before a name and its numeral.
    """

    group: str
    decimal: str
    percent: str
    money: str
    months: tuple[str, ...]
    currencies: Mapping[str, tuple[Forms, Forms]]
    units: Mapping[str, Forms]
    anywhere: Mapping[str, str]
    before_capital: Mapping[str, str]
    before_digit: Mapping[str, str]
    numbered: tuple[str, ...]
    numbered_after: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    scales: Mapping[str, str] = field(default_factory=dict)


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(","))


def _pairs(text: str, mark: str = " = ") -> dict[str, str]:
    """Return what `sign = words; sign = words` says of each sign."""
    parts = (" ".join(part.split()).partition(mark) for part in text.split(";"))
    return {sign: words for sign, _, words in parts}


def _forms(words: str) -> Forms:
    """Return both forms: `foot/feet`, `meter+s`, or one word for both."""
    one, mark, several = words.partition("+" if "+" in words else "/")
    return one, one + several if mark == "+" else several or one


def _units(text: str) -> dict[str, Forms]:
    return {sign: _forms(words) for sign, words in _pairs(text, " ").items()}


def _currencies(text: str) -> dict[str, tuple[Forms, Forms]]:
    """Return currencies by their signs, from `sign euro+s, cent+s; sign ...`."""
    parts = ((sign, *words.partition(", ")) for sign, words in _pairs(text, " ").items())
    return {sign: (_forms(major), _forms(minor)) for sign, major, _, minor in parts}


EN = Words(
    group=",", decimal=".", percent="percent", money="{major} and {minor}",
    months=_words("""January, February, March, April, May, June, July, August, September, October,
        November, December"""),
    currencies=_currencies("""$ dollar+s, cent+s; USD US dollar+s, cent+s; € euro+s, cent+s;
        EUR euro+s, cent+s; £ pound+s, penny/pence; GBP pound+s, penny/pence; ¥ yen;
        CHF Swiss franc+s, centime+s"""),
    units=_units("""km kilometer+s; km/h kilometers per hour; mph miles per hour; m meter+s;
        cm centimeter+s; mm millimeter+s; km² square kilometer+s; m² square meter+s; kg kilogram+s;
        g gram+s; mg milligram+s; lb pound+s; lbs pound+s; oz ounce+s; ft foot/feet; l liter+s;
        L liter+s; ml milliliter+s; mL milliliter+s; °C degree Celsius/degrees Celsius;
        °F degree Fahrenheit/degrees Fahrenheit; ° degree+s; Hz hertz; kHz kilohertz; MHz megahertz;
        GHz gigahertz; kB kilobyte+s; MB megabyte+s; GB gigabyte+s; TB terabyte+s; kW kilowatt+s;
        kWh kilowatt hour+s; ms millisecond+s"""),
    anywhere=_pairs("""Mr. = Mister; Mrs. = Missus; Ms. = Miz; Jr. = Junior; Sr. = Senior;
        etc. = et cetera; e.g. = for example; i.e. = that is; vs. = versus; approx. = approximately;
        dept. = department"""),
    before_capital=_pairs("""Dr. = Doctor; Prof. = Professor; St. = Saint; Capt. = Captain;
        Gen. = General; Lt. = Lieutenant; Col. = Colonel; Sgt. = Sergeant; Rev. = Reverend;
        Mt. = Mount"""),
    before_digit=_pairs("""No. = number; Nos. = numbers; vol. = volume; Vol. = Volume; p. = page;
        pp. = pages; Fig. = Figure; fig. = figure; ch. = chapter"""),
    numbered=_words("""chapter, part, book, volume, act, scene, section, appendix, canto, World War,
        article, phase"""),
    titles=_words("""King, Queen, Pope, Emperor, Tsar, Czar, Louis, Henry, Charles, Edward, George,
        Elizabeth, Napoleon, Richard, William, James"""),
    scales=_pairs("""thousand = thousand; million = million; billion = billion; trillion = trillion;
        m = million; bn = billion; k = thousand"""),
)  # fmt: skip
DE = Words(
    group=". \u00a0\u202f'’", decimal=",", percent="Prozent", money="{major} {minor_number}",
    months=_words("""Januar, Februar, März, April, Mai, Juni, Juli, August, September, Oktober,
        November, Dezember"""),
    currencies=_currencies("""€ Euro, Cent; EUR Euro, Cent; $ Dollar, Cent; USD US-Dollar, Cent;
        £ Pfund, Penny/Pence; CHF Franken, Rappen; ¥ Yen"""),
    units=_units("""km Kilometer; km/h Kilometer pro Stunde; m Meter; cm Zentimeter; mm Millimeter;
        km² Quadratkilometer; m² Quadratmeter; kg Kilogramm; g Gramm; mg Milligramm; t Tonne+n;
        l Liter; ml Milliliter; °C Grad Celsius; °F Grad Fahrenheit; ° Grad; Hz Hertz;
        kHz Kilohertz; MHz Megahertz; GHz Gigahertz; kB Kilobyte; MB Megabyte; GB Gigabyte;
        TB Terabyte; kW Kilowatt; kWh Kilowattstunde+n; ms Millisekunde+n"""),
    anywhere=_pairs("""z. B. = zum Beispiel; z.B. = zum Beispiel; d. h. = das heißt;
        d.h. = das heißt; u. a. = unter anderem; u.a. = unter anderem; usw. = und so weiter;
        bzw. = beziehungsweise; ca. = circa; evtl. = eventuell; ggf. = gegebenenfalls;
        inkl. = inklusive; vgl. = vergleiche; z. T. = zum Teil; etc. = et cetera; Mio. = Millionen;
        Mrd. = Milliarden"""),
    before_capital=_pairs("Dr. = Doktor; Prof. = Professor; Hr. = Herr; Fr. = Frau; St. = Sankt"),
    before_digit=_pairs("Nr. = Nummer; Bd. = Band; Kap. = Kapitel; S. = Seite; Abb. = Abbildung"),
    numbered=_words("Kapitel, Teil, Band, Buch, Akt, Szene, Anhang, Abschnitt"),
    titles=_words("""König, Königin, Papst, Kaiser, Kaiserin, Ludwig, Friedrich, Heinrich, Karl,
        Wilhelm, Elisabeth"""),
    scales=_pairs("""Mio. = Millionen; Millionen = Millionen; Mrd. = Milliarden;
        Milliarden = Milliarden"""),
)  # fmt: skip
FR = Words(
    group=" \u00a0\u202f.", decimal=",", percent="pour cent", money="{major} {minor_number}",
    months=_words("""janvier, février, mars, avril, mai, juin, juillet, août, septembre, octobre,
        novembre, décembre"""),
    currencies=_currencies("""€ euro+s, centime+s; EUR euro+s, centime+s; $ dollar+s, cent+s;
        USD dollar américain/dollars américains, cent+s; £ livre+s, penny/pence;
        CHF franc suisse/francs suisses, centime+s"""),
    units=_units("""km kilomètre+s; km/h kilomètres à l'heure; m mètre+s; cm centimètre+s;
        mm millimètre+s; km² kilomètre carré/kilomètres carrés; m² mètre carré/mètres carrés;
        kg kilogramme+s; g gramme+s; mg milligramme+s; l litre+s; ml millilitre+s;
        °C degré Celsius/degrés Celsius; °F degré Fahrenheit/degrés Fahrenheit; ° degré+s; Hz hertz;
        kHz kilohertz; MHz mégahertz; GHz gigahertz; Mo mégaoctet+s; Go gigaoctet+s; kW kilowatt+s;
        kWh kilowattheure+s"""),
    anywhere=_pairs("""etc. = et cetera; p. ex. = par exemple; c.-à-d. = c'est-à-dire;
        av. J.-C. = avant Jésus-Christ; apr. J.-C. = après Jésus-Christ"""),
    before_capital=_pairs("""M. = Monsieur; MM. = Messieurs; Mme = Madame; Mmes = Mesdames;
        Mlle = Mademoiselle; Dr = Docteur; Pr = Professeur"""),
    before_digit=_pairs("n° = numéro; p. = page; chap. = chapitre; vol. = volume"),
    numbered=_words("chapitre, partie, tome, acte, scène, livre, volume, section"),
    numbered_after=_words("siècle, siècles"),
    titles=_words("Louis, Henri, Charles, Philippe, Napoléon, pape, roi"),
)  # fmt: skip
ES = Words(
    group=". \u00a0\u202f", decimal=",", percent="por ciento", money="{major} con {minor}",
    months=_words("""enero, febrero, marzo, abril, mayo, junio, julio, agosto, septiembre, octubre,
        noviembre, diciembre"""),
    currencies=_currencies("""€ euro+s, céntimo+s; EUR euro+s, céntimo+s; $ dólar+es, centavo+s;
        USD dólar+es, centavo+s; £ libra+s, penique+s"""),
    units=_units("""km kilómetro+s; km/h kilómetros por hora; m metro+s; cm centímetro+s;
        mm milímetro+s; km² kilómetro cuadrado/kilómetros cuadrados;
        m² metro cuadrado/metros cuadrados; kg kilogramo+s; g gramo+s; mg miligramo+s; l litro+s;
        ml mililitro+s; °C grado Celsius/grados Celsius; °F grado Fahrenheit/grados Fahrenheit;
        ° grado+s; Hz hercio+s; MHz megahercio+s; GHz gigahercio+s; MB megabyte+s; GB gigabyte+s;
        kW kilovatio+s"""),
    anywhere=_pairs("""Ud. = usted; Uds. = ustedes; etc. = etcétera; p. ej. = por ejemplo;
        EE. UU. = Estados Unidos"""),
    before_capital=_pairs("""Sr. = Señor; Sra. = Señora; Srta. = Señorita; Dr. = Doctor;
        Dra. = Doctora; Prof. = Profesor; D. = Don; Dña. = Doña; Avda. = Avenida"""),
    before_digit=_pairs("""núm. = número; n.º = número; pág. = página; cap. = capítulo;
        vol. = volumen"""),
    numbered=_words("capítulo, tomo, acto, parte, libro, volumen, escena, siglo"),
)  # fmt: skip
IT = Words(
    group=". \u00a0\u202f'’", decimal=",", percent="per cento", money="{major} e {minor_number}",
    months=_words("""gennaio, febbraio, marzo, aprile, maggio, giugno, luglio, agosto, settembre,
        ottobre, novembre, dicembre"""),
    currencies=_currencies("""€ euro, centesimo/centesimi; EUR euro, centesimo/centesimi;
        $ dollaro/dollari, centesimo/centesimi; USD dollaro/dollari, centesimo/centesimi;
        £ sterlina/sterline, penny/pence"""),
    units=_units("""km chilometro/chilometri; km/h chilometri all'ora; m metro/metri;
        cm centimetro/centimetri; mm millimetro/millimetri;
        km² chilometro quadrato/chilometri quadrati; m² metro quadrato/metri quadrati;
        kg chilogrammo/chilogrammi; g grammo/grammi; mg milligrammo/milligrammi; l litro/litri;
        ml millilitro/millilitri; °C grado Celsius/gradi Celsius;
        °F grado Fahrenheit/gradi Fahrenheit; ° grado/gradi; Hz hertz; MHz megahertz; GHz gigahertz;
        MB megabyte; GB gigabyte; kW chilowatt"""),
    anywhere=_pairs("ecc. = eccetera; p. es. = per esempio; ad es. = ad esempio"),
    before_capital=_pairs("""Sig. = Signor; sig. = signor; Sig.ra = Signora; sig.ra = signora;
        Dott. = Dottor; dott. = dottor; Dott.ssa = Dottoressa; Prof. = Professor; prof. = professor;
        Ing. = Ingegner; Avv. = Avvocato"""),
    before_digit=_pairs("pag. = pagina; n. = numero; cap. = capitolo; vol. = volume"),
    numbered=_words("capitolo, parte, atto, volume, libro, tomo, scena"),
    numbered_after=_words("secolo"),
)  # fmt: skip
NL = Words(
    group=". \u00a0\u202f", decimal=",", percent="procent", money="{major} {minor_number}",
    months=_words("""januari, februari, maart, april, mei, juni, juli, augustus, september, oktober,
        november, december"""),
    currencies=_currencies("""€ euro, cent; EUR euro, cent; $ dollar, cent; USD dollar, cent;
        £ pond, penny/pence"""),
    units=_units("""km kilometer; km/h kilometer per uur; m meter; cm centimeter; mm millimeter;
        km² vierkante kilometer; m² vierkante meter; kg kilogram; g gram; mg milligram; l liter;
        ml milliliter; °C graden Celsius; °F graden Fahrenheit; ° graad/graden; Hz hertz;
        MHz megahertz; GHz gigahertz; MB megabyte; GB gigabyte; kW kilowatt"""),
    anywhere=_pairs("""bijv. = bijvoorbeeld; bv. = bijvoorbeeld; d.w.z. = dat wil zeggen;
        enz. = enzovoort; etc. = et cetera; o.a. = onder andere; m.a.w. = met andere woorden;
        ca. = circa"""),
    before_capital=_pairs("""dhr. = de heer; mevr. = mevrouw; mw. = mevrouw; dr. = dokter;
        prof. = professor; St. = Sint"""),
    before_digit=_pairs("nr. = nummer; blz. = bladzijde"),
    numbered=_words("hoofdstuk, deel, boek, akte, scène"),
)  # fmt: skip
PT = Words(
    group=". \u00a0\u202f", decimal=",", percent="por cento", money="{major} e {minor}",
    months=_words("""janeiro, fevereiro, março, abril, maio, junho, julho, agosto, setembro,
        outubro, novembro, dezembro"""),
    currencies=_currencies("""€ euro+s, cêntimo+s; EUR euro+s, cêntimo+s; R$ real/reais, centavo+s;
        BRL real/reais, centavo+s; US$ dólar+es, centavo+s; $ dólar+es, centavo+s;
        USD dólar+es, centavo+s"""),
    units=_units("""km quilômetro+s; km/h quilômetros por hora; m metro+s; cm centímetro+s;
        mm milímetro+s; km² quilômetro quadrado/quilômetros quadrados;
        m² metro quadrado/metros quadrados; kg quilograma+s; g grama+s; mg miligrama+s; l litro+s;
        ml mililitro+s; °C grau Celsius/graus Celsius; °F grau Fahrenheit/graus Fahrenheit;
        ° grau+s; Hz hertz; MHz mega-hertz; GHz giga-hertz; MB megabyte+s; GB gigabyte+s;
        kW quilowatt+s"""),
    anywhere=_pairs("etc. = et cetera; p. ex. = por exemplo"),
    before_capital=_pairs("""Sr. = Senhor; Sra. = Senhora; Dr. = Doutor; Dra. = Doutora;
        Prof. = Professor; Profa. = Professora; Av. = Avenida"""),
    before_digit=_pairs("pág. = página; n.º = número; nº = número; cap. = capítulo; vol. = volume"),
    numbered=_words("capítulo, parte, tomo, volume, ato, cena, livro, século"),
)  # fmt: skip
WORDS: Mapping[str, Words] = {
    "en": EN, "de": DE, "fr": FR, "es": ES, "it": IT, "nl": NL, "pt": PT,
}  # fmt: skip


def has_rules(language: str) -> bool:
    """Say whether texts in a language can be spelled out."""
    return base_of(language) in WORDS
