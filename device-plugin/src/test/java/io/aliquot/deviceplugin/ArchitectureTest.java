package io.aliquot.deviceplugin;

import static com.tngtech.archunit.base.DescribedPredicate.describe;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.domain.JavaAccess;
import com.tngtech.archunit.core.importer.ImportOption.DoNotIncludeTests;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;
import java.time.Clock;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Map;
import java.util.Set;

@AnalyzeClasses(packages = "io.aliquot.deviceplugin", importOptions = DoNotIncludeTests.class)
final class ArchitectureTest {
    private static final Map<String, Set<String>> STATIC_CLOCKS = Map.of(
            System.class.getName(), Set.of("nanoTime", "currentTimeMillis"),
            Instant.class.getName(), Set.of("now"),
            InstantSource.class.getName(), Set.of("system"),
            Clock.class.getName(), Set.of("system", "systemUTC", "systemDefaultZone", "tickMillis", "tickSeconds"));

    @ArchTest
    static final ArchRule theDevicePluginDoesNotDependOnTheScheduler =
            noClasses().should().dependOnClassesThat().resideInAPackage("io.aliquot.scheduler..");

    /** A reader can take the packages one at a time. */
    @ArchTest
    static final ArchRule packagesHaveNoCycles =
            slices().matching("io.aliquot.deviceplugin.(*)..").should().beFreeOfCycles();

    /** It must answer without the control plane. */
    @ArchTest
    static final ArchRule allocateCannotCallTheApiServer = noClasses()
            .that()
            .resideInAPackage("..kubelet..")
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage("..deviceplugin.node..", "java.net.http..");

    @ArchTest
    static final ArchRule onlyTheNvmlAndFilesPackagesCallNativeCode = noClasses()
            .that()
            .resideOutsideOfPackages("..nvml..", "..deviceplugin.files..")
            .should()
            .dependOnClassesThat()
            .resideInAPackage("com.sun.jna..");

    /** The other classes get their clocks by constructor, so that tests can control the time. */
    @ArchTest
    static final ArchRule onlyTheEntryPointReadsStaticClocks = noClasses()
            .that()
            .doNotHaveFullyQualifiedName(DevicePlugin.class.getName())
            .should()
            .accessTargetWhere(describe("reads a static clock", ArchitectureTest::isStaticClock));

    private static boolean isStaticClock(JavaAccess<?> access) {
        return STATIC_CLOCKS
                .getOrDefault(access.getTargetOwner().getFullName(), Set.of())
                .contains(access.getTarget().getName());
    }
}
