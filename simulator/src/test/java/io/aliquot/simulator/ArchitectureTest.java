package io.aliquot.simulator;

import static com.tngtech.archunit.base.DescribedPredicate.not;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ImportOption.DoNotIncludeTests;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

@AnalyzeClasses(packages = "io.aliquot.simulator", importOptions = DoNotIncludeTests.class)
class ArchitectureTest {
    /** The ledger and all that knows a cluster are free to change. */
    @ArchTest
    static final ArchRule theSimulatorKnowsPlacementAndScoresOfTheScheduler = noClasses()
            .should()
            .dependOnClassesThat(resideInAPackage("io.aliquot.scheduler..")
                    .and(not(resideInAnyPackage(
                            "io.aliquot.scheduler.simulation",
                            "io.aliquot.scheduler.placement",
                            "io.aliquot.scheduler.scoring"))));
}
