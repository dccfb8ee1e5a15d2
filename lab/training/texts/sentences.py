"""Make sentences of random words: by a small grammar, with numbers in words, with names."""

from __future__ import annotations

import random
import re

from lab.training.texts.corpus import Corpus, made_up_word
from lab.training.texts.dictionary import ADJECTIVE, ADVERB, DOING, PAST, PLAIN, PLURAL, kind_of
from synth.text.speller import speller

_SLOT = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")
_REPLACED_SHARE = 0.5  # of the content words of a sentence of the book

# Every slot is one of these choices, parted by bars; or a kind of word, a name, or digits.
_RULES = {
    "sentence": "{clause}.|{clause}.|{clause}.|{clause}, {and} {clause}.|{when} {clause}, {clause}."
    "|{question}?|{question}?|{quoted}|{quoted}|{listed}.|{order}!|{order}.|{opening}, {clause}."
    "|{clause}; {clause}.|{clause} ({clause}).|{clause}: {listed}.|{clause} - {clause}."
    "|{subject}, {which} {past} {where}, {past} {object}.|{exclaimed}!|{clause}...",
    "clause": "{subject} {past} {object}|{subject} {past} {object} {where}"
    "|{subject} had {been} {adjective}|{subject} had {been} {doing} {object}"
    "|{subject} {modal} {verb} {object}|there {is} {a} {adjective} {noun} {where}"
    "|it {is} {adverb} {adjective}|{subject} {past} {adverb} {where}"
    "|{pronoun} {modal} {verb} that {subject} {past} {object}|{noun} and {noun} {modal} {verb}"
    "|{isnt} {adjective} {where}|{subject} {wanted} to {verb} {object}"
    "|the {noun} of {name} {past} {more} than {object}|{subject} {past} {object} {time}",
    "question": "{did} {subject} {verb} {object}|where {is} {object}|why did {subject} {verb}"
    "|who {past} {object} {where}|how {adjective} {is} {object}|what {is} {object} for"
    "|{did} {pronoun} {verb} {object} or {object}|{modal} {pronoun} {verb} {where}|{is} it {noun}"
    "|how many {nouns} {modal} {subject} {verb}|{subject} {past} it, {didnt} {pronoun}",
    "quoted": '"{order}," {said} {name}.|"{question}?" asked {subject}.|{name} {said}, "{clause}."'
    '|"{clause}," {pronoun} {said}, "{and} {clause}."|"{exclaimed}!" cried the {noun}.',
    "listed": "{nouns}, {nouns} and {nouns}|{subject} {past} {nouns}, {nouns}, and {nouns}"
    "|{adjective}, {adjective} {and} {adjective}|a {noun}, a {noun} and the {noun} {where}"
    "|{noun}, {noun}, {noun}, {noun}",
    "order": "{verb} {object}|{verb} {object} {where}|do not {verb} {object}|please {verb} {object}"
    "|{lets} {verb} {where}|{name}, {verb} {object}|don't {verb} {adverb}|never {verb} {object}",
    "exclaimed": "what {a} {adjective} {noun}|how {adjective}|oh, {clause}|{adjective} {nouns}|no",
    "subject": "{pronoun}|{pronoun}|the {noun}|{my} {noun}|{my} {adjective} {noun}|{name}"
    "|the {nouns}|{some} {nouns}|{a} {noun}|the {noun} of {my} {noun}|nobody|everyone",
    "object": "{me}|the {noun}|{a} {noun}|{my} {noun}|{a} {adjective} {noun}|{some} {nouns}"
    "|the {adjective} {nouns}|{name}|the {noun}'s {noun}|it|that {noun}|these {nouns}"
    "|{doing} {nouns}",
    "where": "{in} the {noun}|{in} {my} {noun}|{in} {a} {adjective} {noun}|{in} {name}|here|there"
    "|{in} the {nouns}|{adverb}",
    "time": "yesterday|on {day}|last {month}|every morning|at night|for {number} days|again|soon"
    "|{number} years ago|until {day} evening|in the spring|before dinner|now|at once",
    "is": "is|was|is|was|will be|must be|isn't|wasn't",
    "isnt": "it isn't|they weren't|he's|she's|we're|you're|I'm|that's|there's|it's|I wasn't",
    "did": "did|does|didn't|doesn't|can|could|will|would|won't|should|may|might",
    "didnt": "didn't|wouldn't|couldn't|won't|hadn't",
    "been": "been|become|not been|never been|always been|once been",
    "modal": "will|would|can|could|may|must|should|might|shall|can't|won't|couldn't|I'd"
    "|has to|used to|didn't|doesn't|never",
    "wanted": "wanted|tried|began|used|hoped|had|liked|went|forgot|decided|refused|seems|ought",
    "lets": "let's|let us|we'll|you'd better|try to|go and|come and",
    "and": "and|but|or|so|because|for|although|while|yet|and then|unless",
    "when": "when|if|as|after|before|because|although|while|since|until|once|whenever",
    "opening": "however|then|well|yes|no|of course|at last|in fact|after all|first|finally"
    "|for example|meanwhile|perhaps|unfortunately|{adverb}|today|oh|listen|{name}|as usual",
    "which": "which|who|that",
    "more": "more|less|rather|better|no more|much more",
    "said": "said|asked|cried|answered|whispered|replied|shouted|says|thought",
    "pronoun": "I|you|he|she|it|we|they|I|he|she|this|that|one|somebody|you",
    "me": "me|you|him|her|it|us|them|himself|herself|something|everything|nothing|each other",
    "my": "my|your|his|her|its|our|their|this|that|every|another|no|the|the",
    "a": "a|a|the|one|such a|quite a|another",
    "some": "some|many|few|all|these|those|most|several|more|other|no|both|{number}|a lot of",
    "in": "in|on|at|by|with|from|into|under|over|through|behind|near|without|against|between"
    "|across|around|before|after|beyond|along|inside|about|upon|toward|above|of|out of",
    "verb": "be|have|do|say|make|go|know|take|see|come|think|look|want|give|use|find|tell|ask"
    "|work|feel|try|leave|call|keep|let|begin|help|show|hear|play|run|move|live|believe|bring"
    "|write|sit|stand|lose|pay|meet|learn|change|watch|follow|stop|speak|read|spend|grow|open"
    "|walk|win|teach|offer|remember|love|buy|wait|serve|die|send|build|stay|fall|cut|reach|kill"
    "|raise|pass|sell|decide|return|explain|hope|carry|break|thank|receive|join|eat|catch|draw"
    "|choose|drink|sing|sleep|throw|wear|fly|drive|shut|hold|push|pull|climb|cook|count|dance"
    "|{word}|{word}|{word}|{word}|{word}",
    "past": "was|had|did|said|made|went|knew|took|saw|came|thought|got|gave|found|told|felt|left"
    "|kept|let|began|ran|held|wrote|stood|lost|met|read|spoke|grew|won|bought|sent|built|fell|cut"
    "|sold|broke|ate|caught|drew|chose|drank|sang|slept|threw|wore|flew|drove|shut|heard|sat|led"
    "|brought|taught|paid|spent|understood|rose|hid|shook|bit|blew|dug|fought|forgot|hung|hurt"
    "|laid|lit|rode|rang|sank|stole|struck|swam|tore|woke|wept|{pasts}" + "|{pasts}" * 60,
    "noun": "time|year|people|way|day|man|thing|woman|life|child|world|school|house|family|hand"
    "|water|room|mother|night|eye|word|car|city|name|friend|door|father|book|street|boy|girl|face"
    "|war|morning|food|tree|river|light|road|dog|cat|horse|bird|fish|sea|sun|moon|money|king|table"
    "|window|letter|story|wall|garden|stone|heart|head|foot|arm|voice|paper|music|picture|train"
    "|ship|boat|fire|wind|rain|snow|summer|winter|bread|milk|wine|village|church|doctor|teacher"
    "|brother|sister|uncle|aunt|daughter|son|husband|wife|baby|island|mountain|forest|bridge"
    + "|{word}"
    * 130,
    "month": "January|February|March|April|May|June|July|August|September|October|November"
    "|December",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "name": "{capital}|{capital}|{capital}|{first}|{first} {capital}|{first} {capital}"
    "|{title} {capital}|{title} {first} {capital}|{capital} {road}|{place} {capital}|{month}|{day}"
    "|{country}|{capital} and {capital}|O'{capital}|Mc{capital}",
    "title": "Mr.|Mrs.|Mister|Doctor|Dr.|Miss|Captain|Professor|Sir|Lady|President|King|Uncle",
    "road": "Street|Road|Avenue|Park|Lake|River|Hill|Castle|County|College|Station|Square",
    "place": "New|Lake|Mount|North|South|East|West|Port|Fort|San|Saint|Upper|Little|Old",
    "first": "John|Mary|James|Anna|Peter|Alice|Thomas|Emma|George|Sarah|Henry|Laura|David|Julia"
    "|Robert|Helen|Michael|Susan|William|Jane|Charles|Margaret|Daniel|Lucy|Paul|Ruth|Mark|Rose"
    "|Richard|Emily|Edward|Karen|Frank|Nancy|Simon|Linda|Arthur|Grace|Samuel|Clara|Joseph|Eva",
    "country": "England|America|France|London|Paris|New York|Germany|China|India|Europe|Africa"
    "|Russia|Spain|Italy|Canada|Mexico|Japan|Australia|Ireland|Scotland|Chicago|Boston|Rome"
    "|Berlin|California|Texas|Egypt|Greece|Washington|Vienna|Poland|Sweden|Brazil",
    "numbered": "{subject} paid {money} for {object}.|it {is} {money}.|that makes {money}, please."
    "|on {date}, {clause}.|{clause} on {date}.|{subject} {past} {object} in {year}."
    "|from {year} to {year} {clause}.|in the {decade} {clause}.|at {clock} {clause}."
    "|the {noun} leaves at {clock}.|it {is} {clock}.|{clause} at {clock} on {day}."
    "|{large} {nouns} {past} {object}.|there are {large} {nouns} {where}.|{number} {nouns}."
    "|{percent} of the {nouns} {past} {object}.|the {place_number} {noun} {past} {object}."
    "|{clause}, {number} times.|chapter {number}: {adjective} {nouns}.|page {large}.|{clock}."
    "|{number}, {number}, {number} and {number}.|{number} and {number} {is} {large}.|{large}."
    "|{name} was born on {date}.|{date}.|{money}.|{year}.|the number is {digits}.|{digits}."
    "|{name} is {number} years old.|{length} {where}.|{decimal}.|it weighs {length}."
    "|about {decimal} million {nouns}.|{subject} {past} {large} {nouns} for {money} in {year}."
    "|{question}, in {year} or in {year}?|room {number} is on the {place_number} floor.",
}
_CHOICES = {slot: tuple(choices.split("|")) for slot, choices in _RULES.items()}
_KINDS = {
    "word": PLAIN, "nouns": PLURAL, "adjective": ADJECTIVE, "adverb": ADVERB, "pasts": PAST,
    "doing": DOING,
}  # fmt: skip


class SentenceMaker:
    """Fill slots of the grammar with words of a corpus."""

    def __init__(self, corpus: Corpus, rng: random.Random) -> None:
        self._corpus, self._rng = corpus, rng

    def make(self, slot: str) -> str:
        """Return what a slot is filled with; "sentence", "numbered", "name" are used elsewhere.

        Numbers are in words, as the service says them.
        """
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", self._fill(slot))
        # After "a.m." the full stop of the sentence is one too many.
        return capitalise(re.sub(r"(?<!\.)\.\.(?!\.)", ".", spell_out(text)))

    def vary_sentence(self) -> str:
        """Return a sentence of the book, half of its content words replaced by words alike."""
        return _WORD.sub(self._vary_word, self._rng.choice(self._corpus.sentences))

    def follow_words(self) -> str:
        """Return a sentence whose words follow each other as in spoken English."""
        rng, words = self._rng, self._corpus.dictionary.draw_running_words(self._rng)
        words = [word.capitalize() if re.match(r"i('|$)", word) else word for word in words]
        for index in range(2, len(words) - 1):
            if words[index] in ("and", "but", "which", "because", "so") and rng.random() < 0.4:
                words[index - 1] += ","
        return capitalise(" ".join(words)) + rng.choice("......?!")

    def _fill(self, slot: str) -> str:
        choices = _CHOICES.get(slot)
        if choices is not None:
            chosen = self._rng.choice(choices)
            return _SLOT.sub(lambda match: self._fill(match[1]), chosen)
        if slot in _KINDS:
            return self._corpus.dictionary.groups[_KINDS[slot]].draw(self._rng)
        return self._capital() if slot == "capital" else self._digits(slot)

    def _capital(self) -> str:
        if self._rng.random() < 0.25:
            return made_up_word(self._corpus, self._rng).capitalize()
        return self._rng.choice(self._corpus.dictionary.rare).capitalize()

    def _digits(self, slot: str) -> str:
        """Return a number in digits; of small and large ones every length is as likely."""
        rng = self._rng
        size = rng.randrange(10 ** rng.choice((1, 2, 2)))
        large = rng.randrange(10 ** rng.randint(1, 6))
        year = rng.choice((rng.randint(1100, 1999), rng.randint(1900, 2030)))
        month, day = rng.choice(_CHOICES["month"]), rng.randint(1, 28)
        ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day // 10 != 1 else 0, "th")
        hour, minute = rng.randint(1, 12), rng.randrange(60)
        makers = {
            "number": f"{size}",
            "large": f"{large:,}",
            "year": f"{year}",
            "decade": f"{year // 10}0s",
            "date": rng.choice((f"{month} {day}, {year}", f"{day} {month} {year}",
                                f"{month} {day}", f"the {day}{ending} of {month}")),
            "clock": rng.choice((f"{hour}:{minute:02}", f"{hour}:00", f"{hour} am", f"{hour} p.m.",
                                 f"{hour}:{minute:02} pm", f"{rng.randrange(24)}:{minute:02}")),
            "money": rng.choice((f"${size}.{minute:02}", f"${large:,}", f"${size + 1}",
                                 f"{size} USD", f"\u00a3{size}", f"\u20ac{size}.{minute:02}",
                                 f"${hour}.{size % 10} million")),
            "percent": rng.choice((f"{size}%", f"{size}.{hour % 10}%")),
            "place_number": f"{day}{ending}",
            "digits": " ".join(str(rng.randrange(10)) for _ in range(rng.randint(3, 9))),
            "decimal": f"{size}.{rng.randrange(10 ** rng.randint(1, 3))}",
            "length": rng.choice((f"{size} km", f"{size}.{hour % 10} m", f"{size} kg")),
        }  # fmt: skip
        return makers[slot]

    def _vary_word(self, match: re.Match[str]) -> str:
        word = match[0]
        dictionary, low = self._corpus.dictionary, word.lower()
        kept = len(word) < 4 or low in dictionary.function_words or "'" in word
        if kept or self._rng.random() > _REPLACED_SHARE:
            return word
        new = dictionary.groups[kind_of(low)].draw(self._rng)
        return new.capitalize() if word[0].isupper() else new


def capitalise(text: str) -> str:
    """Return a text whose sentences begin with a capital letter."""
    return re.sub(r"(^\W*|[.?!] +\"?)([a-z])", lambda match: match[1] + match[2].upper(), text)


def spell_out(text: str) -> str:
    """Return a text with its numbers in words, as the service says them in English."""
    spell = speller("en")
    if spell is None:
        raise RuntimeError("the service has no rules of English")
    for start, end, said in reversed(spell(text)):
        text = text[:start] + said + text[end:]
    return text
