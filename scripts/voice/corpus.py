"""Writes the training text: corpus.py WORDNET_FOLDER OUT.txt [TEST.txt ...]

Sentences of 3 to 20 words from WordNet's examples and glosses, and from a small grammar over
WordNet's most frequent words. Sentences of the test files are left out. One a line, shuffled;
the same input gives the same file.
"""
import random
import re
import sys

random.seed(1)
pick = random.choice


def usable(s):
    words = s.split()
    return (3 <= len(words) <= 20 and 12 <= len(s) <= 115
            and re.fullmatch(r"[A-Za-z ,.'?!;:-]+", s)
            and not any(len(w) > 1 and w.isupper() for w in words))


def sentence(s):
    s = s.strip().strip("`\"'").replace("--", ", ").replace(" ;", ";").replace("`", "'")
    s = re.sub(r"\s+", " ", s)
    s = s[:1].upper() + s[1:]
    return s if s[-1:] in (".", "?", "!") else s.rstrip(",;:- ") + "."


def wordnet(folder):
    examples, glosses = [], []
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"{folder}/data.{part}", errors="ignore") as f:
            for line in f:
                if "| " not in line:
                    continue
                gloss = line.split("| ", 1)[1]
                examples += map(sentence, re.findall(r'"([^"]+)"', gloss))
                gloss = re.sub(r'"[^"]*"|\([^)]*\)', "", gloss)
                glosses += [sentence(p) for p in gloss.split(";") if len(p.split()) >= 4]
    return [s for s in examples if usable(s)], [s for s in glosses if usable(s)]


def frequent(folder, kind, n):
    """The n lemmas that WordNet's tagged texts hold most often; kind: 1 noun, 2 verb, 3 adj."""
    count = {}
    with open(f"{folder}/cntlist.rev") as f:
        for line in f:
            key, _, c = line.split()
            lemma, sense = key.split("%")
            if sense[0] in kind and re.fullmatch("[a-z]{3,11}", lemma):
                count[lemma] = count.get(lemma, 0) + int(c)
    return sorted(count, key=lambda w: (-count[w], w))[:n]


NAMES = """John Mary Peter Anna Tom Alice David Sarah James Emma Paul Lucy Mark Julia George Helen
Robert Susan Henry Kate Jack Laura Daniel Maria Michael Grace London Paris Berlin Boston
Chicago America England""".split()
ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " \
       "fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth twelfth".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November " \
         "December".split()
PAST = """saw found liked opened closed carried followed watched heard painted built broke fixed
held threw caught sold bought brought took left loved wanted needed remembered forgot drew cleaned
moved pushed pulled touched kicked covered reached made gave kept lost won paid met sent told asked
called cooked washed wore ate drank wrote read taught chose hid stole shook cut hit set put""".split()
PRESENT = """sees finds likes opens closes carries follows watches hears paints builds breaks fixes
holds throws catches sells buys brings takes leaves loves wants needs remembers forgets draws cleans
moves pushes pulls touches kicks covers reaches makes gives keeps loses wins pays meets""".split()
WHERE = """in on under near behind beside above below across from inside around through with by
without between against along""".split()
WHEN = """slowly|quickly|quietly|today|yesterday|again|every day|at night|in the morning|this
afternoon|after lunch|before dinner|all day long|very well|once more|last week|tomorrow|now|soon|
right away|a long time ago|for the first time|next year|every weekend|as soon as possible""" \
    .replace("\n", " ").replace("| ", "|").split("|")
PERSON = "I you he she we they".split()
TALK = """how are you today|it is nice to meet you|welcome back|good morning|good night|thank you
very much|please come in|have a nice day|I am sorry|excuse me|see you later|that sounds great|I do
not know|of course|never mind|you are right|I think so|let us go|do not worry|what a pity|well
done|just a moment please|I am on my way|it does not matter|that is enough|happy birthday""" \
    .replace("\n", " ").split("|")


class Grammar:
    def __init__(self, folder):
        self.nouns = frequent(folder, "1", 1500)
        self.verbs = frequent(folder, "2", 700)
        self.adjectives = frequent(folder, "35", 700)

    def number(self):
        k = random.random()
        if k < 0.5:
            return pick(ONES + TENS)
        if k < 0.8:
            return pick(TENS) + "-" + pick(ONES[:9])
        if k < 0.9:
            return pick(ONES[:9]) + " hundred and " + pick(ONES + TENS)
        return pick(ONES + TENS) + pick((" thousand", " million", " point " + pick(ONES[:9]),
                                         " percent", " hundred"))

    def thing(self):
        rest = pick(self.nouns)
        if random.random() < 0.5:
            rest = pick(self.adjectives) + " " + rest
        article = pick("the the the a a my your his her our their this that every some".split())
        return ("an" if article == "a" and rest[0] in "aeiou" else article) + " " + rest

    def many(self):
        noun = pick(self.nouns)
        if noun.endswith("y") and noun[-2] not in "aeiou":
            return noun[:-1] + "ies"
        return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")

    def act(self):
        return f"{pick(self.verbs)} {self.thing()}"

    def who(self):
        return pick(PERSON) if random.random() < 0.5 else pick(
            (pick(NAMES), self.thing(), self.thing()))

    def clause(self):
        thing, act, many, number, who = (self.thing, self.act, self.many, self.number, self.who)
        return pick((
            lambda: f"{who()} {pick(PAST)} {thing()}",
            lambda: f"{who()} {pick(PAST)} {thing()} {pick(WHERE)} {thing()}",
            lambda: f"{thing()} {pick(PRESENT)} {thing()} {pick(WHEN)}",
            lambda: f"{pick(NAMES)} {pick(PAST)} {thing()} {pick(WHEN)}",
            lambda: f"there {pick(('are', 'were'))} {number()} {many()} {pick(WHERE)} {thing()}",
            lambda: f"{who()} {pick(('will', 'can', 'should', 'would', 'could', 'might', 'must'))}"
                    f" {pick(('', 'not ', 'never ', 'always ', 'also '))}{act()}",
            lambda: f"{who()} {pick(('wanted', 'had', 'used', 'forgot', 'decided', 'tried'))} to "
                    f"{act()}",
            lambda: f"I {pick(('am going', 'would like', 'need', 'have', 'am about'))} to {act()}",
            lambda: f"{pick(('I', 'we', 'they', 'you'))} "
                    f"{pick(('do not', 'did not', 'have never', 'cannot', 'will not'))} "
                    f"{pick(('know', 'see', 'need', 'like', 'want'))} {thing()}",
            lambda: f"{thing()} was {pick(self.adjectives)} and {pick(self.adjectives)}",
            lambda: f"{thing()} is {pick(('very', 'too', 'so', 'more', 'quite', 'almost'))} "
                    f"{pick(self.adjectives)}",
            lambda: f"it is {number()} o'clock and {thing()} is {pick(self.adjectives)}",
            lambda: f"{thing()} and {thing()} {pick(('went', 'walked', 'ran', 'moved', 'came'))} "
                    f"{pick(WHERE)} {thing()}",
            lambda: f"{pick(('this is', 'here is', 'that was', 'it was'))} {thing()} that "
                    f"{pick(NAMES)} {pick(PAST)}",
            lambda: f"{who()} {pick(PAST)} it on {pick(DAYS)}, the {pick(ORDINALS)} of "
                    f"{pick(MONTHS)}",
            lambda: f"{thing()} has {number()} {many()}, {number()} {many()} and {thing()}"))()

    def question(self):
        thing, act = self.thing, self.act
        return pick((
            lambda: f"can you tell me {pick(('where', 'when', 'how', 'why'))} {thing()} is",
            lambda: f"{pick(('what', 'where', 'who', 'which', 'how'))} is {thing()}",
            lambda: f"{pick(('do', 'did', 'would', 'could', 'will', 'can', 'should'))} "
                    f"{pick(('you', 'we', 'they', 'I', 'he', 'she'))} {act()} {pick(WHEN)}",
            lambda: f"{pick(('why', 'when', 'where', 'how'))} did {self.who()} {act()}",
            lambda: f"how {pick(('much', 'many', 'long', 'far', 'often'))} "
                    f"{pick(('is', 'does', 'will'))} {thing()}",
            lambda: f"have you ever {pick(('seen', 'heard', 'been to', 'had'))} {thing()}"))()

    def order(self):
        return pick((
            lambda: f"please {self.act()} {pick(WHEN)}", lambda: f"do not {self.act()}",
            lambda: f"let us {self.act()} and {self.act()}", lambda: f"never {self.act()}"))()

    def speak(self):
        k, joint = random.random(), (", and ", ", but ", ", so ", " because ", " when ", " if ",
                                     " while ", "; ", ". ", " before ", " although ")
        if k < 0.42:
            return sentence(self.clause())
        if k < 0.60:
            return sentence(self.question() + "?")
        if k < 0.68:
            return sentence(self.order() + pick(".!"))
        if k < 0.73:
            return sentence(f"hello {pick(NAMES)}, {pick(TALK)}" + pick(".!?"))
        if k < 0.77:
            return sentence(f"{pick(TALK)}, {self.clause()}")
        if k < 0.79:
            return sentence(", ".join(self.number() for _ in range(random.randrange(3, 6))))
        j = pick(joint)
        tail = self.clause()
        return sentence(self.clause() + j + (tail[0].upper() + tail[1:] if j == ". " else tail))


def key(s):
    return re.sub("[^a-z]", "", s.lower())


def main(folder, out, *tests):
    banned = {key(line) for t in tests for line in open(t)}
    examples, glosses = (list(dict.fromkeys(x)) for x in wordnet(folder))
    random.shuffle(glosses)
    grammar = Grammar(folder)
    made = [s for s in (grammar.speak() for _ in range(34000)) if usable(s)]
    lines = list(dict.fromkeys(examples + glosses[:26000] + made))
    lines = [s for s in lines if key(s) not in banned]
    random.shuffle(lines)
    with open(out, "w") as f:
        f.write("\n".join(lines) + "\n")
    words = {w for s in lines for w in re.findall("[a-z']+", s.lower())}
    print(f"{len(lines)} sentences: {len(examples)} examples, {min(26000, len(glosses))} glosses, "
          f"{len(made)} of the grammar; {len(words)} words, "
          f"{sum(map(len, lines)) / len(lines):.1f} characters a sentence")


if __name__ == "__main__":
    main(*sys.argv[1:])
