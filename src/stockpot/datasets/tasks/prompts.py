"""Prompt templates of the tasks, in our own words, as many as are customary for each."""

from __future__ import annotations

from itertools import product

SCENES = ("a photo of a {}.", "a photo taken at a {}.")
CARS = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo of a {} car.",
    "a picture of my new {}.",
    "a picture of an old {}.",
    "a {} on the road.",
    "a {} in a car park.",
    "a clean {}.",
)
FROM_ABOVE = tuple(
    f"{view} of {noun}."
    for view, noun in product(
        (
            "a satellite image",
            "an aerial photo",
            "an overhead view",
            "a picture from above",
            "a remote sensing image",
            "a bird's eye view",
        ),
        ("a {}", "the {}", "{}"),
    )
)
SATELLITE = (
    "a satellite image of {}.",
    "a satellite image of a piece of {}.",
    "{} seen from a satellite.",
)
HOUSE_NUMBERS = ('a photo of the house number "{}".',)
TRAFFIC_SIGNS = (
    'a photo of a traffic sign that says "{}".',
    'a "{}" road sign, close up.',
    'the "{}" traffic sign.',
)
TEXTURES = (
    "a photo of a {} texture.",
    "a photo of a {} pattern.",
    "a photo of something {}.",
    "a photo of a {} surface.",
    "a close-up of a {} texture.",
    "a close-up of a {} pattern.",
    "a close-up of something {}.",
    "a close-up of a {} surface.",
)
SMALL_PHOTOS = tuple(
    f"{photo} of {noun}."
    for photo, noun in product(
        (
            "a photo",
            "a blurry photo",
            "a black and white photo",
            "a low contrast photo",
            "a high contrast photo",
            "a bad photo",
            "a good photo",
            "a photo of a small object, most likely",
            "a photo of a large object, most likely",
        ),
        ("a {}", "the {}"),
    )
)
PHOTOS = ("a photo of a {}.", "a photo of the {}.")
FLOWERS = ("a photo of a {}, a kind of flower.",)
PETS = ("a photo of a {}, a breed of pet.",)
TISSUE = ("a microscope picture of {}.",)
FACES = (
    "a photo of a {} face.",
    "a photo of a face that looks {}.",
    "a face that shows someone is {}.",
    "someone who looks {}.",
    "a portrait of a {} person.",
    "this person is {}.",
)
FOOD = ("a photo of {}, a kind of food.",)
LETTERS = ('a photo of the handwritten letter "{}".',)
CHARACTERS = ('a photo of the handwritten character "{}".',)
REVIEWS = ("a {} review of a film.",)
