package io.aliquot.scheduler;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.importer.ImportOption.DoNotIncludeTests;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

@AnalyzeClasses(packages = "io.aliquot.scheduler", importOptions = DoNotIncludeTests.class)
class ArchitectureTest {
    /** So that who holds what can be tested by the million without a cluster, and served by another edge. */
    @ArchTest
    static final ArchRule ledgerAndPlacementKnowNeitherHttpNorKubernetesClient = noClasses()
            .that()
            .resideInAnyPackage("..ledger..", "..placement..")
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

    /** Jackson 3 writes fabric8's Quantity wrongly, so the extender's wire types are its own. */
    @ArchTest
    static final ArchRule verbsKnowNoKubernetesClient = noClasses()
            .that()
            .resideInAPackage("..extender..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("io.fabric8..");

    /** The facade is for other programs. */
    @ArchTest
    static final ArchRule schedulerDoesNotUseItsFacade = noClasses()
            .that()
            .resideOutsideOfPackage("..simulation..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("..simulation..");

    /** A reader can take the packages one at a time. */
    @ArchTest
    static final ArchRule packagesHaveNoCycles =
            slices().matching("io.aliquot.scheduler.(*)..").should().beFreeOfCycles();
}
