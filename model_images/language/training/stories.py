"""Writes the text that the language model learns: small stories and counting rhymes in plain English.

All sentences come from the lists in this file, so the text has this project's licence (Apache 2.0) and no other source.
A blank line ends each story.
"""

import random
from collections.abc import Callable, Iterator

NAMES = {
    "He": ["Ben", "Tom", "Sam", "Max", "Oscar", "Hugo", "Finn", "Jack", "Victor", "Quinn"],
    "She": ["Anna", "Lily", "Mia", "Ella", "Rosa", "Nina", "Kate", "Daisy", "Zoe", "Una"],
}
OBJECTS = {"He": "him", "She": "her"}
POSSESSIVES = {"He": "his", "She": "her"}
ANIMALS = [
    "fox", "hen", "frog", "bear", "mouse", "rabbit", "duck", "cat", "dog", "goat", "sheep", "pig", "horse", "snail",
]  # fmt: skip
PLURALS = {"fox": "foxes", "mouse": "mice", "sheep": "sheep"}
NATURES = ["small", "big", "brave", "clever", "shy", "kind", "young", "old", "quick", "lazy", "happy", "hungry"]
HOMES = [
    "in a small house by the river", "in a hole under the old tree", "near the lake", "on a green hill",
    "in the deep forest", "behind the red barn", "at the end of the village", "in a garden full of flowers",
]  # fmt: skip
PLACES = [
    "in the garden", "by the river", "under a tree", "on the hill", "near the lake", "in the forest", "behind the barn",
    "on the road", "next to the bridge", "in the long grass",
]  # fmt: skip
HOBBIES = [
    "sing", "swim", "dance", "read", "climb trees", "count the stars", "sleep in the sun", "look for berries",
    "jump over puddles", "tell stories", "bake bread", "paint the clouds",
]  # fmt: skip
TIMES = ["One day", "One morning", "One evening", "After the rain", "In the spring", "Before dinner", "On a cold night"]
THINGS = [
    "apple", "ball", "kite", "key", "lamp", "drum", "book", "hat", "basket", "boat", "cake", "coin", "egg", "flower",
    "letter", "stone", "bell",
]  # fmt: skip
LOOKS = ["red", "blue", "yellow", "green", "round", "shiny", "tiny", "heavy", "golden", "strange", "white", "brown"]
FEELINGS = ["happy", "proud", "tired", "surprised", "very glad", "full of joy", "calm"]
WEATHER = [
    "The sun was warm and the wind was soft.", "It was raining, but nobody minded.", "Snow was falling on the fields.",
    "The moon was bright.", "The birds were singing.", "There was not a cloud in the sky.",
]  # fmt: skip
ENDS = [
    "Then they all went to bed.", "That was a good day.", "And they stayed friends forever.",
    "They ate soup and laughed until night.", "And that is the end of the story.", "The next day they met again.",
]  # fmt: skip
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
RHYMES = [
    ("One, two", "tie your shoe"), ("three, four", "knock at the door"), ("five, six", "pick up sticks"),
    ("seven, eight", "do not be late"), ("nine, ten", "start again"),
]  # fmt: skip
WAYS_OUT = ["walked away", "ran home", "fell asleep", "went for a swim", "hid in the grass", "said goodbye"]


def article(noun: str) -> str:
    """Returns the words with a or an before them."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def plural(animal: str) -> str:
    """Returns the name of several animals."""
    return PLURALS.get(animal, f"{animal}s")


def meeting(rng: random.Random) -> str:
    """Returns a story in which an animal finds a thing and gives it to another animal."""
    he, they = rng.choice(list(NAMES)), rng.choice(list(NAMES))
    name = rng.choice(NAMES[he])
    friend = rng.choice([each for each in NAMES[they] if each != name])
    animal, other = rng.sample(ANIMALS, 2)
    thing, gift = rng.sample(THINGS, 2)
    look, place = rng.choice(LOOKS), rng.choice(PLACES)
    lines = [
        rng.choice([
            f"Once there was {article(rng.choice(NATURES))} {animal} named {name}.",
            f"{name} was {article(rng.choice(NATURES))} {animal}.",
            f"There was once {article(animal)} whose name was {name}.",
        ]),
        f"{he} lived {rng.choice(HOMES)}.",
        f"{he} liked to {rng.choice(HOBBIES)} and to {rng.choice(HOBBIES)}.",
        f"{rng.choice(TIMES)} {name} found {article(look)} {thing} {place}.",
        rng.choice([
            f"\"What {article(look)} {thing}!\" said {name}.",
            f"\"Is this your {thing}?\" {name} asked {friend} the {other}.",
            f"{name} took the {thing} home.",
        ]),
    ]  # fmt: skip
    if rng.random() < 0.5:
        lines.insert(3, rng.choice(WEATHER))
    lines += [
        rng.choice([
            f"{name} gave the {thing} to {friend} the {other}.",
            f"{friend} the {other} came and looked at the {thing}.",
            f"{he} showed the {look} {thing} to {POSSESSIVES[he]} friend {friend} the {other}.",
        ]),
        rng.choice([
            f"{friend} was {rng.choice(FEELINGS)}.",
            f"\"Thank you, {name},\" said {friend}, and {they.lower()} gave {OBJECTS[he]} {article(gift)}.",
            f"\"I have {article(thing)} too,\" said {friend}.",
        ]),
        rng.choice(ENDS),
    ]  # fmt: skip
    return " ".join(lines)


def remaining(count: int) -> str:
    """Returns how many there are when one of this number has left."""
    if count == 1:
        return "then there were none"
    return "then there was one" if count == 2 else f"then there were {NUMBERS[count - 2]}"


def leaving(rng: random.Random) -> str:
    """Returns a rhyme that counts animals down to none."""
    animal, place, way = rng.choice(ANIMALS), rng.choice(PLACES), rng.choice(WAYS_OUT)
    start = rng.randint(3, 7)
    lines = []
    for count in range(start, 0, -1):
        many = plural(animal) if count > 1 else animal
        lines.append(f"{NUMBERS[count - 1].capitalize()} little {many} sat {place}. One {way}, and {remaining(count)}.")
    return "\n".join(lines)


def coming(rng: random.Random) -> str:
    """Returns a rhyme that counts animals up."""
    animal, place = rng.choice(ANIMALS), rng.choice(PLACES)
    start = rng.randint(1, 6)
    lines = []
    for count in range(start, start + rng.randint(2, 5)):
        many = f"{plural(animal)} were" if count > 1 else f"{animal} was"
        lines.append(f"{NUMBERS[count - 1].capitalize()} {many} {place}. Then came another one.")
    return "\n".join(lines)


def shoes(_: random.Random) -> str:
    """Returns a rhyme from one to ten."""
    return "\n".join(f"{numbers}, {rest}." for numbers, rest in RHYMES)


def talk(rng: random.Random) -> str:
    """Returns two animals' questions and answers."""
    name, friend = rng.choice(NAMES["He"]), rng.choice(NAMES["She"])
    lines = [f'"Good morning, {friend}," said {name} the {rng.choice(ANIMALS)}.']
    for _ in range(rng.randint(1, 3)):
        exchange = rng.choice([
            (f"Where is my {(thing := rng.choice(THINGS))}?", f"Your {thing} is {rng.choice(PLACES)}"),
            ("What do you like to do?", f"I like to {rng.choice(HOBBIES)}"),
            ("How are you?", f"I am {rng.choice(FEELINGS)}, thank you"),
            (f"How many {plural(rng.choice(ANIMALS))} do you see?", f"I see {rng.choice(NUMBERS[1:])} of them"),
        ])  # fmt: skip
        lines += [f'"{exchange[0]}" asked {name}.', f'"{exchange[1]}," said {friend}.']
    return "\n".join([*lines, rng.choice(ENDS)])


WRITERS: list[Callable[[random.Random], str]] = [meeting, meeting, meeting, leaving, coming, talk]


def stories(seed: int) -> Iterator[str]:
    """Yields stories without end: the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311  no secret
    while True:
        writer = shoes if rng.random() < 0.02 else rng.choice(WRITERS)
        yield writer(rng) + "\n\n"


def text(seed: int, least: int) -> str:
    """Returns whole stories with at least this number of characters."""
    parts, length = [], 0
    for story in stories(seed):
        parts.append(story)
        length += len(story)
        if length >= least:
            break
    return "".join(parts)


if __name__ == "__main__":
    print(text(1, 3000), end="")
