"""The five papers, by the folder of their recipes; the file is that of their text among the project's sources."""

from __future__ import annotations

from leakscope.reproduction.recipe import Paper

ATS_ONE = Paper(
    "ats_one",
    "000_10b469120735e99c.txt",
    'Drabent, Wijnja, Sluijter, Bereda: [Re] Replication study of "Privacy-preserving Collaborative Learning", '
    "ReScience C 2022",
)
ATS_TWO = Paper(
    "ats_two",
    "001_f96c4e30dbf0b59f.txt",
    "Warmerdam, Loerakker, Meijer, Nissen: [Re] Privacy-preserving collaborative learning with automatic "
    "transformation search, ReScience C 2022",
)
THESIS = Paper(
    "thesis",
    "002_74dedebb2380b0d3.txt",
    "Ren: Gradient Leakage and Protection for Federated Learning, doctoral thesis, Swansea University 2023",
)
AGIC = Paper(
    "agic",
    "003_23ef37b35c5f21b8.txt",
    "Xu, Hong, Huang, Chen, Decouchant: AGIC: Approximate Gradient Inversion Attack on Federated Learning, SRDS 2022",
)
MKOR = Paper(
    "mkor",
    "004_f16b90f2c805031d.txt",
    "Wang, Velipasalar, Gursoy: Maximum Knowledge Orthogonality Reconstruction with Gradients in Federated Learning, "
    "WACV 2024",
)

PAPERS = {paper.key: paper for paper in (ATS_ONE, ATS_TWO, THESIS, AGIC, MKOR)}
