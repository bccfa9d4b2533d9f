package io.aliquot.deviceplugin;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import org.junit.jupiter.api.Test;

final class ArchitectureTest {
    private final JavaClasses ours = new ClassFileImporter()
            .withImportOption(new ImportOption.DoNotIncludeTests())
            .importPackages("io.aliquot.deviceplugin");

    @Test
    void thePluginAndTheSchedulerShareTheApiModuleOnly() {
        noClasses()
                .should()
                .dependOnClassesThat()
                .resideInAPackage("io.aliquot.scheduler..")
                .check(ours);
    }

    @Test
    void allocateCannotCallTheApiServer() {
        // It must answer from memory, however the control plane is.
        noClasses()
                .that()
                .resideInAPackage("..kubelet..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage("..deviceplugin.node..", "java.net.http..")
                .check(ours);
    }

    @Test
    void nativeCodeIsCalledInOnePackage() {
        noClasses()
                .that()
                .resideOutsideOfPackage("..nvml..")
                .should()
                .dependOnClassesThat()
                .resideInAPackage("com.sun.jna..")
                .check(ours);
    }
}
