package io.aliquot.deviceplugin;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaAccess;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import java.time.Clock;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

final class ArchitectureTest {
    private static final Map<String, Set<String>> STATIC_CLOCKS = Map.of(
            System.class.getName(), Set.of("nanoTime", "currentTimeMillis"),
            Instant.class.getName(), Set.of("now"),
            InstantSource.class.getName(), Set.of("system"),
            Clock.class.getName(), Set.of("system", "systemUTC", "systemDefaultZone", "tickMillis", "tickSeconds"));

    private final JavaClasses classes = new ClassFileImporter()
            .withImportOption(new ImportOption.DoNotIncludeTests())
            .importPackages("io.aliquot.deviceplugin");

    @Test
    void theDevicePluginDoesNotDependOnTheScheduler() {
        noClasses()
                .should()
                .dependOnClassesThat()
                .resideInAPackage("io.aliquot.scheduler..")
                .check(classes);
    }

    @Test
    void allocateCannotCallTheApiServer() {
        // It must answer without the control plane.
        noClasses()
                .that()
                .resideInAPackage("..kubelet..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage("..deviceplugin.node..", "java.net.http..")
                .check(classes);
    }

    @Test
    void onlyTheNvmlPackageCallsNativeCode() {
        noClasses()
                .that()
                .resideOutsideOfPackage("..nvml..")
                .should()
                .dependOnClassesThat()
                .resideInAPackage("com.sun.jna..")
                .check(classes);
    }

    @Test
    void onlyTheEntryPointReadsStaticClocks() {
        // The other classes get their clocks by constructor, so that tests can control the time.
        noClasses()
                .that()
                .doNotHaveFullyQualifiedName(DevicePlugin.class.getName())
                .should()
                .accessTargetWhere(
                        DescribedPredicate.describe("the target is a static clock", ArchitectureTest::isStaticClock))
                .check(classes);
    }

    private static boolean isStaticClock(JavaAccess<?> access) {
        return STATIC_CLOCKS
                .getOrDefault(access.getTargetOwner().getFullName(), Set.of())
                .contains(access.getTarget().getName());
    }
}
