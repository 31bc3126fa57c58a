-- A namespace's counts are read without those of the others.
create index counts_namespace on dormouse.counts (namespace);
