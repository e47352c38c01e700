"""Tables and figures of AGIC."""
