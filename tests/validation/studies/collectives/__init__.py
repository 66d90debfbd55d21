"""How far off is the predicted time of a collective?"""

TABLES = ("one_node", "published", "exchanges")
