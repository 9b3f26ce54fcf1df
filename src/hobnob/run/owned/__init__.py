"""A run among several owners: what differs for the process of one of them."""
