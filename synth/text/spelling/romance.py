"""Hold the words of French, Spanish, Italian and Portuguese for spelling out."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what languages are written in

from __future__ import annotations

from synth.text.spelling.forms import ANY, CAPITAL, DIGIT, Words, units

FR = Words(
    group=" \u00a0\u202f.",
    decimal=",",
    months=("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre",
            "octobre", "novembre", "décembre"),
    percent="pour cent",
    currencies={
        "€": (("euro", "euros"), ("centime", "centimes")),
        "EUR": (("euro", "euros"), ("centime", "centimes")),
        "$": (("dollar", "dollars"), ("cent", "cents")),
        "USD": (("dollar américain", "dollars américains"), ("cent", "cents")),
        "£": (("livre", "livres"), ("penny", "pence")),
        "CHF": (("franc suisse", "francs suisses"), ("centime", "centimes")),
    },
    money="{major} {minor_number}",
    units=units("""
        km kilomètre/kilomètres
        km/h kilomètres à l'heure
        m mètre/mètres
        cm centimètre/centimètres
        mm millimètre/millimètres
        km² kilomètre carré/kilomètres carrés
        m² mètre carré/mètres carrés
        kg kilogramme/kilogrammes
        g gramme/grammes
        mg milligramme/milligrammes
        l litre/litres
        ml millilitre/millilitres
        °C degré Celsius/degrés Celsius
        °F degré Fahrenheit/degrés Fahrenheit
        ° degré/degrés
        Hz hertz
        kHz kilohertz
        MHz mégahertz
        GHz gigahertz
        Mo mégaoctet/mégaoctets
        Go gigaoctet/gigaoctets
        kW kilowatt/kilowatts
        kWh kilowattheure/kilowattheures
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
    currencies={
        "€": (("euro", "euros"), ("céntimo", "céntimos")),
        "EUR": (("euro", "euros"), ("céntimo", "céntimos")),
        "$": (("dólar", "dólares"), ("centavo", "centavos")),
        "USD": (("dólar", "dólares"), ("centavo", "centavos")),
        "£": (("libra", "libras"), ("penique", "peniques")),
    },
    money="{major} con {minor}",
    units=units("""
        km kilómetro/kilómetros
        km/h kilómetros por hora
        m metro/metros
        cm centímetro/centímetros
        mm milímetro/milímetros
        km² kilómetro cuadrado/kilómetros cuadrados
        m² metro cuadrado/metros cuadrados
        kg kilogramo/kilogramos
        g gramo/gramos
        mg miligramo/miligramos
        l litro/litros
        ml mililitro/mililitros
        °C grado Celsius/grados Celsius
        °F grado Fahrenheit/grados Fahrenheit
        ° grado/grados
        Hz hercio/hercios
        MHz megahercio/megahercios
        GHz gigahercio/gigahercios
        MB megabyte/megabytes
        GB gigabyte/gigabytes
        kW kilovatio/kilovatios
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
    currencies={
        "€": (("euro", "euro"), ("centesimo", "centesimi")),
        "EUR": (("euro", "euro"), ("centesimo", "centesimi")),
        "$": (("dollaro", "dollari"), ("centesimo", "centesimi")),
        "USD": (("dollaro", "dollari"), ("centesimo", "centesimi")),
        "£": (("sterlina", "sterline"), ("penny", "pence")),
    },
    money="{major} e {minor_number}",
    units=units("""
        km chilometro/chilometri
        km/h chilometri all'ora
        m metro/metri
        cm centimetro/centimetri
        mm millimetro/millimetri
        km² chilometro quadrato/chilometri quadrati
        m² metro quadrato/metri quadrati
        kg chilogrammo/chilogrammi
        g grammo/grammi
        mg milligrammo/milligrammi
        l litro/litri
        ml millilitro/millilitri
        °C grado Celsius/gradi Celsius
        °F grado Fahrenheit/gradi Fahrenheit
        ° grado/gradi
        Hz hertz
        MHz megahertz
        GHz gigahertz
        MB megabyte
        GB gigabyte
        kW chilowatt
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
    currencies={
        "€": (("euro", "euros"), ("cêntimo", "cêntimos")),
        "EUR": (("euro", "euros"), ("cêntimo", "cêntimos")),
        "R$": (("real", "reais"), ("centavo", "centavos")),
        "BRL": (("real", "reais"), ("centavo", "centavos")),
        "US$": (("dólar", "dólares"), ("centavo", "centavos")),
        "$": (("dólar", "dólares"), ("centavo", "centavos")),
        "USD": (("dólar", "dólares"), ("centavo", "centavos")),
    },
    money="{major} e {minor}",
    units=units("""
        km quilômetro/quilômetros
        km/h quilômetros por hora
        m metro/metros
        cm centímetro/centímetros
        mm milímetro/milímetros
        km² quilômetro quadrado/quilômetros quadrados
        m² metro quadrado/metros quadrados
        kg quilograma/quilogramas
        g grama/gramas
        mg miligrama/miligramas
        l litro/litros
        ml mililitro/mililitros
        °C grau Celsius/graus Celsius
        °F grau Fahrenheit/graus Fahrenheit
        ° grau/graus
        Hz hertz
        MHz mega-hertz
        GHz giga-hertz
        MB megabyte/megabytes
        GB gigabyte/gigabytes
        kW quilowatt/quilowatts
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
