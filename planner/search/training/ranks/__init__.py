"""Ranks of a plan that are not alike: `places` and `kinds` say which, `told` what each kind takes, `crowded` what a rank takes
whose experts are chosen more often than others'. Imports no torch."""
