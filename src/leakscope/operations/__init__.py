"""Operations on pictures [n, c, h, w], the same for the client that applies them and the attacker who knows them.

`eight_bit` computes on grey levels, to the level what Pillow makes of a file: this is what a client trains on.
`smooth` has the same operations on pixels in [0, 1] with derivatives, for an attacker who optimises through them.
`library` and `policy` are the numbered operations of the transformation search, and how several of them are written.
"""
