"""The rows of the ablation, which two experiments share."""

from evergraph.lab.paper.experiment import Row

MF, ER_GNN, CD = "(1) MF", "(1) ER-GNN", "(2) CD"
MF_SL = "(3) MF + SL"
LINK, NODE, BOTH = "(4)-1 CD + SL (link)", "(4)-2 CD + SL (node)", "(4)-3 CD + SL (both)"
HOMOPHILY = "(5) CD + homophily up"
TUNED = "DSLR as tuned"

#: λ is the paper's 0.5 wherever both losses are on; the presets have their own.
ROWS = {
    MF: Row(MF, "dslr:structure=none,selector=mf"),
    ER_GNN: Row(ER_GNN, "er-gnn"),
    CD: Row(CD, "dslr:structure=none"),
    MF_SL: Row(MF_SL, "dslr:selector=mf,lam=0.5"),
    LINK: Row(LINK, "dslr:lam=1.0"),
    NODE: Row(NODE, "dslr:lam=0.0"),
    BOTH: Row(BOTH, "dslr:lam=0.5"),
    HOMOPHILY: Row(HOMOPHILY, "dslr:structure=homophily"),
    TUNED: Row(TUNED, "dslr"),
}
