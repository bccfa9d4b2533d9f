module aliquot/openb

go 1.21
