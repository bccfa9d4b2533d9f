package io.aliquot.scheduler;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.importer.ImportOption.DoNotIncludeTests;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

@AnalyzeClasses(packages = "io.aliquot.scheduler", importOptions = DoNotIncludeTests.class)
class ArchitectureTest {
    /** A million steps of the ledger run in seconds without a cluster, and another server could answer from it. */
    @ArchTest
    static final ArchRule ledgerScoringAndPlacementKnowNeitherHttpNorKubernetesClient = noClasses()
            .that()
            .resideInAnyPackage("..ledger..", "..scoring..", "..placement..")
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage(
                    "io.fabric8..",
                    "org.springframework..",
                    "jakarta.servlet..",
                    "java.net.http..",
                    "tools.jackson..",
                    "com.fasterxml.jackson..",
                    "..extender..",
                    "..cluster..",
                    "..server..");

    /** Scoring observes the ledger; allocations can be understood and tested without any policy. */
    @ArchTest
    static final ArchRule ledgerAndPlacementDoNotKnowScoring = noClasses()
            .that()
            .resideInAnyPackage("..ledger..", "..placement..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("..scoring..");

    /** A policy can be replaced by another one: the caches use it through ScoringPolicy. */
    @ArchTest
    static final ArchRule scoringCachesKnowNoPolicy = noClasses()
            .that()
            .resideInAPackage("..scheduler.scoring")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("..scoring.fragmentation..");

    /** Jackson 3 writes fabric8's Quantity wrongly, so the extender's wire types are its own. */
    @ArchTest
    static final ArchRule verbsKnowNoKubernetesClient = noClasses()
            .that()
            .resideInAPackage("..extender..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("io.fabric8..");

    /** A reader can take the packages one at a time. */
    @ArchTest
    static final ArchRule packagesHaveNoCycles =
            slices().matching("io.aliquot.scheduler.(*)..").should().beFreeOfCycles();
}
