module aliquot/bench

go 1.21
