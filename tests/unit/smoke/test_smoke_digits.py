"""Drawn digits: the same everywhere, of every class, and not to be guessed."""

import hashlib
from collections import Counter

import pytest

from builder.smoke import data
from builder.smoke import data as digits

# Equal on Python 3.8, 3.10, 3.11 and 3.13: a change here is a change of every site's data.
FIRST_200 = "4bf36515d5a96558e0cbcb86a2b2c142fe588691510dd2407562519c6e934b30"


def test_the_bytes_are_pinned() -> None:
    pixels, labels = digits.draw(0, 200, seed=1)
    assert hashlib.sha256(pixels + labels).hexdigest() == FIRST_200


def test_an_image_depends_on_its_number_alone() -> None:
    pixels, labels = digits.draw(0, 30)
    later_pixels, later_labels = digits.draw(20, 10)
    assert pixels[20 * digits.PIXELS :] == later_pixels
    assert labels[20:] == later_labels


def test_seeds_differ() -> None:
    assert digits.draw(0, 20, seed=1) != digits.draw(0, 20, seed=2)


def test_every_class_is_drawn_about_as_often() -> None:
    counts = Counter(digits.draw(0, 1000)[1])
    assert sorted(counts) == list(range(10))
    assert min(counts.values()) > 60


def test_no_image_is_blank_or_twice_there() -> None:
    pixels, labels = digits.draw(0, 300)
    images = [pixels[n * digits.PIXELS : (n + 1) * digits.PIXELS] for n in range(300)]
    assert len(labels) == 300
    assert len(set(images)) == 300
    assert all(sum(1 for level in image if level > 100) >= 10 for image in images)


def test_drawn_digits_are_split_without_overlap() -> None:
    loaded = data.load(None, 40)
    assert loaded.source == "drawn"
    assert (len(loaded.train[1]), len(loaded.test[1])) == (40, 10)
    assert loaded.train[0] + loaded.test[0] == digits.draw(0, 50)[0]


@pytest.mark.property
def test_a_guess_by_the_mean_image_stays_under_the_floor() -> None:
    """Nearest class mean, the simplest learner there is, must not reach what a trained network has to."""
    pixels, labels = digits.draw(0, 1500)
    images = [pixels[n * digits.PIXELS : (n + 1) * digits.PIXELS : 3] for n in range(1500)]
    means = []
    for digit in range(10):
        mine = [image for image, label in zip(images[:1200], labels, strict=False) if label == digit]
        means.append([sum(column) / len(mine) for column in zip(*mine, strict=True)])
    right = 0
    for image, label in zip(images[1200:], labels[1200:], strict=True):
        away = [sum((a - b) ** 2 for a, b in zip(image, mean, strict=True)) for mean in means]
        right += away.index(min(away)) == label
    assert 0.2 < right / 300 < 0.8
