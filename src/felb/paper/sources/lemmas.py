"""A small English lemmatizer by rules, without a dictionary.

It brings plurals, -ing and -ed forms to one form and knows the irregular words that are common in abstracts. Unlike a
stemmer it aims at words (``proposed`` becomes ``propose``, ``studies`` ``study``), and like one it is wrong at times;
what counts here is that the forms of a word fall together.
"""

from __future__ import annotations

import re

IRREGULAR = {
    form: lemma
    for lemma, forms in {
        "analysis": "analyses", "hypothesis": "hypotheses", "synthesis": "syntheses", "thesis": "theses",
        "basis": "bases", "axis": "axes", "matrix": "matrices matrixes", "vertex": "vertices",
        "index": "indices indexes indexed indexing", "appendix": "appendices", "criterion": "criteria",
        "phenomenon": "phenomena", "child": "children", "man": "men", "woman": "women", "mouse": "mice",
        "person": "people persons", "life": "lives", "half": "halves", "knife": "knives", "series": "", "species": "",
        "bias": "biases biased", "lens": "lenses", "use": "used uses using", "die": "died dying dies",
        "lie": "lies lying", "tie": "tied tying ties", "be": "is are was were been being am", "have": "has had having",
        "do": "does did done doing", "show": "shown showed", "give": "gave given", "take": "took taken",
        "make": "made", "find": "found", "know": "knew known", "learn": "learnt", "build": "built", "see": "saw seen",
        "get": "got gotten", "go": "went gone", "come": "came", "become": "became", "begin": "began begun",
        "grow": "grew grown", "draw": "drew drawn", "drive": "drove driven", "write": "wrote written",
        "choose": "chose chosen", "lead": "led", "leave": "left", "lose": "lost", "keep": "kept", "hold": "held",
        "think": "thought", "understand": "understood", "arise": "arose arisen", "rise": "rose risen",
        "speak": "spoke spoken", "break": "broke broken", "run": "ran", "fall": "fell fallen", "feed": "fed",
        "seek": "sought", "teach": "taught", "mean": "meant", "spend": "spent", "send": "sent", "hide": "hidden hid",
        "bring": "brought", "thing": "things", "string": "strings", "ring": "rings",
        "king": "kings", "spring": "springs", "embed": "embedded embeds", "label": "labelled labelling",
        "model": "modelled modelling",
        "control": "controlled controlling", "focus": "focused focussed focuses focusing", "bus": "buses",
    }.items()
    for form in [*forms.split(), lemma]
}  # fmt: skip
KEPT = frozenset({
    "data", "news", "physics", "mathematics", "statistics", "dynamics", "semantics", "robotics", "genomics",
    "linguistics", "this", "thus", "always", "across", "perhaps", "during", "something", "nothing", "anything",
    "everything", "need", "speed", "seed", "feed", "indeed", "exceed", "proceed", "succeed", "bed", "red", "hundred",
    "towards", "besides", "bring", "sing", "wing", "swing", "sting", "gas", "alias", "atlas", "canvas", "whereas",
})  # fmt: skip

VOWEL = re.compile("[aeiouy]")
SILENT_E = (
    "v", "c", "u", "z", "as", "es", "is", "os", "us", "ns", "rs", "ls", "ps", "bl", "pl", "gl", "tl", "dg", "rg", "ag",
    "ang", "ur", "uir", "pir", "plor", "scor", "stor", "gnor", "par", "shar", "clar", "at", "ut", "mot", "not", "vot",
    "plet", "delet", "pet", "id", "rad", "vad", "scad", "cod", "lud", "trud", "sum", "nam", "fram", "bin", "fin", "min",
    "lin", "pil", "fil", "scal", "dul", "rul", "hap", "cap", "typ", "vok", "scrib",
)  # fmt: skip
"""How stems end that had an e: achiev-ed, produc-ing, propos-ed, generat-ing, requir-ed."""

NO_E = ("eat", "oat", "out", "our", "oid", "aid", "gin", "ount", "focus")
"""Exceptions: repeat-ed, avoid-ed."""

DOUBLED = re.compile(r"([bdgmnprt])\1$")


def lemmatize(word: str) -> str:
    """Return the base form of a word in lower case.

    Examples
    --------
    >>> [lemmatize(word) for word in ("networks", "studies", "trained", "mapping", "proposed", "matrices", "learning")]
    ['network', 'study', 'train', 'map', 'propose', 'matrix', 'learn']
    """
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in KEPT or len(word) < 4:
        return word
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    word = word[:-1] if word.endswith("ings") else word  # embeddings, as embedding
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word:
            return _verb(stem) if len(stem) > 2 and VOWEL.search(stem) else word
    return _singular(word)


def _singular(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is", "ous")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


def _verb(stem: str) -> str:
    """Return the verb of a stem that has lost -ing or -ed: undo a doubled letter, put a silent e back."""
    if DOUBLED.search(stem) and len(stem) > 3 and stem not in ("add", "err"):
        return stem[:-1]
    if stem.endswith(SILENT_E) and (stem == "creat" or not stem.endswith(NO_E)):
        return stem + "e"
    # A short stem of consonant, vowel, consonant had an e (hop-ed would have been hopped): tun-ing, cod-ed.
    if re.fullmatch("[^aeiou]+[aeiouy][^aeiouwxy]", stem):
        return stem + "e"
    return stem
