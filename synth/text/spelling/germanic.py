"""Hold the words of English, German and Dutch for spelling out."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what languages are written in

from __future__ import annotations

from synth.text.spelling.forms import ANY, CAPITAL, DIGIT, NO_MINOR, Words, units

EN = Words(
    group=",",
    decimal=".",
    months=("January", "February", "March", "April", "May", "June", "July", "August", "September",
            "October", "November", "December"),
    percent="percent",
    currencies={
        "$": (("dollar", "dollars"), ("cent", "cents")),
        "USD": (("US dollar", "US dollars"), ("cent", "cents")),
        "€": (("euro", "euros"), ("cent", "cents")),
        "EUR": (("euro", "euros"), ("cent", "cents")),
        "£": (("pound", "pounds"), ("penny", "pence")),
        "GBP": (("pound", "pounds"), ("penny", "pence")),
        "¥": (("yen", "yen"), NO_MINOR),
        "CHF": (("Swiss franc", "Swiss francs"), ("centime", "centimes")),
    },
    money="{major} and {minor}",
    units=units("""
        km kilometer/kilometers
        km/h kilometers per hour
        mph miles per hour
        m meter/meters
        cm centimeter/centimeters
        mm millimeter/millimeters
        km² square kilometer/square kilometers
        m² square meter/square meters
        kg kilogram/kilograms
        g gram/grams
        mg milligram/milligrams
        lb pound/pounds
        lbs pound/pounds
        oz ounce/ounces
        ft foot/feet
        l liter/liters
        L liter/liters
        ml milliliter/milliliters
        mL milliliter/milliliters
        °C degree Celsius/degrees Celsius
        °F degree Fahrenheit/degrees Fahrenheit
        ° degree/degrees
        Hz hertz
        kHz kilohertz
        MHz megahertz
        GHz gigahertz
        kB kilobyte/kilobytes
        MB megabyte/megabytes
        GB gigabyte/gigabytes
        TB terabyte/terabytes
        kW kilowatt/kilowatts
        kWh kilowatt hour/kilowatt hours
        ms millisecond/milliseconds
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
    currencies={
        "€": (("Euro", "Euro"), ("Cent", "Cent")),
        "EUR": (("Euro", "Euro"), ("Cent", "Cent")),
        "$": (("Dollar", "Dollar"), ("Cent", "Cent")),
        "USD": (("US-Dollar", "US-Dollar"), ("Cent", "Cent")),
        "£": (("Pfund", "Pfund"), ("Penny", "Pence")),
        "CHF": (("Franken", "Franken"), ("Rappen", "Rappen")),
        "¥": (("Yen", "Yen"), NO_MINOR),
    },
    money="{major} {minor_number}",
    units=units("""
        km Kilometer
        km/h Kilometer pro Stunde
        m Meter
        cm Zentimeter
        mm Millimeter
        km² Quadratkilometer
        m² Quadratmeter
        kg Kilogramm
        g Gramm
        mg Milligramm
        t Tonne/Tonnen
        l Liter
        ml Milliliter
        °C Grad Celsius
        °F Grad Fahrenheit
        ° Grad
        Hz Hertz
        kHz Kilohertz
        MHz Megahertz
        GHz Gigahertz
        kB Kilobyte
        MB Megabyte
        GB Gigabyte
        TB Terabyte
        kW Kilowatt
        kWh Kilowattstunde/Kilowattstunden
        ms Millisekunde/Millisekunden
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
    currencies={
        "€": (("euro", "euro"), ("cent", "cent")),
        "EUR": (("euro", "euro"), ("cent", "cent")),
        "$": (("dollar", "dollar"), ("cent", "cent")),
        "USD": (("dollar", "dollar"), ("cent", "cent")),
        "£": (("pond", "pond"), ("penny", "pence")),
    },
    money="{major} {minor_number}",
    units=units("""
        km kilometer
        km/h kilometer per uur
        m meter
        cm centimeter
        mm millimeter
        km² vierkante kilometer
        m² vierkante meter
        kg kilogram
        g gram
        mg milligram
        l liter
        ml milliliter
        °C graden Celsius
        °F graden Fahrenheit
        ° graad/graden
        Hz hertz
        MHz megahertz
        GHz gigahertz
        MB megabyte
        GB gigabyte
        kW kilowatt
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
