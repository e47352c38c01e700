"""Tables and figures of the second replication of ATS."""
