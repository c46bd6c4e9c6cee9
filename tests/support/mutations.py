"""Request bodies with a few random faults."""

import random

PIECES = b'{}[]",:0\\u\xff\x00e-\xf0\x9f'


def mutate(body: bytes, generator: random.Random) -> bytes:
    """Return a copy with a few random changes."""
    result = bytearray(body)
    for _ in range(generator.randint(1, 5)):
        at = generator.randrange(len(result) + 1)
        kind = generator.random()
        if kind < 0.4:
            result[at : at + 1] = bytes([generator.randrange(256)])
        elif kind < 0.7:
            del result[at : at + generator.randint(1, 8)]
        else:
            result[at:at] = bytes(generator.choices(PIECES, k=generator.randint(1, 5)))
    return bytes(result)
