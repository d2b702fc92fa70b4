RULES = ()
CHECKS = ()
