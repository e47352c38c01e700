"""Claims of the papers and of this project, each measured again by one row of a table."""
