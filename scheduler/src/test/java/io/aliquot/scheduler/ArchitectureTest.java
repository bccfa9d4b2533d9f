package io.aliquot.scheduler;

import static com.tngtech.archunit.base.DescribedPredicate.describe;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.domain.JavaAccess;
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
                    "..apiserver..",
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
            .resideInAnyPackage(
                    "..extender..", "..pending..", "..preemption..", "..recovery..", "..resize..", "..cluster..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("io.fabric8..");

    /** Jackson 2 is on the class path for fabric8 only; Jackson 3 uses the annotations of 2. */
    @ArchTest
    static final ArchRule ourCodeKnowsOneJackson = noClasses()
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage("com.fasterxml.jackson.core..", "com.fasterxml.jackson.databind..");

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

    /** Nor have the parts of a package, such as those of the adapter and of the aggregated API. */
    @ArchTest
    static final ArchRule partsOfPackagesHaveNoCycles =
            slices().matching("io.aliquot.scheduler.(*).(*)..").should().beFreeOfCycles();

    /** What every API group needs could serve other objects. */
    @ArchTest
    static final ArchRule apiMachineryKnowsNoOtherPartOfTheAggregatedApi = noClasses()
            .that()
            .resideInAPackage("..extensionapi.machinery")
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage(
                    "..extensionapi.identity",
                    "..extensionapi.objects",
                    "..extensionapi.endpoints",
                    "..extensionapi.webpage");

    /**
     * A test can set any clock: classes take theirs by constructor, and only {@link SystemClocks} reads the system's.
     * The package excluded belongs to another process, the simulator.
     */
    @ArchTest
    static final ArchRule onlySystemClocksReadsStaticClocks = noClasses()
            .that()
            .doNotBelongToAnyOf(SystemClocks.class)
            .and()
            .resideOutsideOfPackage("..simulation..")
            .should()
            .accessTargetWhere(describe("reads a static clock", ArchitectureTest::readsStaticClock));

    private static boolean readsStaticClock(JavaAccess<?> access) {
        String name = access.getTarget().getName();
        return switch (access.getTarget().getOwner().getName()) {
            case "java.lang.System" -> name.equals("nanoTime") || name.equals("currentTimeMillis");
            case "java.time.Clock", "java.time.InstantSource" -> name.startsWith("system") || name.startsWith("tick");
            default -> access.getTarget().getOwner().getPackageName().equals("java.time") && name.equals("now");
        };
    }
}
