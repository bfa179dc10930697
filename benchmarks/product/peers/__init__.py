"""Systems whose warm objects are compared in the tables of `product` alone."""
