"""Two hundred and fifty-six words, one for each byte: how people compare a pool's fingerprint by voice or eye.

Short, common, concrete, unlike each other to the ear; the first four letters tell them apart. The list is part of the
protocol (`docs/protocol.md`): its order never changes.
"""

from __future__ import annotations

_TEXT = """
    acorn album amber anchor angle ankle apple april apron arena arrow aspen
    atlas attic bacon badge bagel bakery bamboo banana banjo barrel basil basket
    beach beaver bench berry birch bishop bison blanket blossom bonfire border bottle
    bridge bronze bucket buffalo butter cabin camel candle canoe canyon carbon cargo
    carpet carrot castle cedar cellar chalk cherry chimney circus citrus clay cliff
    clover cobalt coconut comet compass copper coral cotton cradle cricket crystal cymbal
    daisy dancer decade delta denim desert diamond dinner dolphin donkey dragon eagle
    earth echo eclipse elbow elder ember emerald engine evening fabric falcon feather
    fern ferry fiddle finger flannel flute forest fossil fountain frost galaxy garden
    garlic giraffe glacier globe granite grape guitar hammer harbor harvest hazel helmet
    heron hickory honey hotel igloo indigo island ivory jacket jaguar jasmine jelly
    jigsaw jungle juniper kayak kitten koala ladder lagoon lantern lavender lemon leopard
    lilac linen lizard lobster lotus magnet mango maple marble meadow melon meteor
    mineral mirror monsoon mosaic moss muffin mustard napkin nectar nickel nutmeg oasis
    ocean olive onion opal orbit orchid otter oxygen oyster paddle palace panda
    paper parrot peanut pebble pelican pencil pepper piano pickle pigeon pillow planet
    plaza plum pocket polar poppy prairie pumpkin puzzle quartz quilt quiver rabbit
    radar radish rainbow raven ribbon river robin rocket rose ruby saddle saffron
    salmon sapphire satin saturn scarf shadow silver sketch spider spruce squid stable
    tango teapot temple thunder tiger timber tomato topaz tulip tunnel turtle umbrella
    unicorn valley vanilla velvet violin volcano waffle walnut walrus willow window winter
    yogurt zebra zigzag zipper
"""
WORDS: tuple[str, ...] = tuple(_TEXT.split())
"""Byte value → word."""


def spell(data: bytes) -> str:
    """One word a byte, separated by spaces."""
    return " ".join(WORDS[value] for value in data)
