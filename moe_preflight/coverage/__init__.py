"""The tables as a whole: which keys have tuned rows (audit, tune), are the rows sound (lint), what changed (compare), what was asked (observe)."""
