module aliquot.io/lab/informer

go 1.22.0
