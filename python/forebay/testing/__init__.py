"""What the tests of Forebay use, for the tests of its users too.

`forebay.testing.chaos` kills, stops and delays the processes of a pool at random, from a seed, and
checks afterwards that nothing is left.
"""
