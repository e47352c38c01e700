"""Tables and figures of Ren's thesis."""
