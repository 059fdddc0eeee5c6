"""The front end for graphs of NNVM and MXNet, and the table of names that their exporter shares with it."""
