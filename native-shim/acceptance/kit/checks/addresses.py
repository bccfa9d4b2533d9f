from kit.container import Container
from kit.report import expect


def run(kit):
    def every_lookup_returns_a_hook():
        with Container(kit) as container:
            bare = kit.run([kit.program("addresses")])
            found = kit.run([kit.program("addresses")], container)
            expect(not found["unhooked"],
                   f"{found['not_hooked']} lookups return a function that is no hook: {'; '.join(found['unhooked'])}")
            expect(found["found"] == found["hooked"] > 0,
                   f"{found['hooked']} of {found['found']} lookups return a hook; expected all, and at least one")
            expect(found["found"] == bare["found"],
                   f"{bare['found']} lookups succeed without the shim, {found['found']} with it; expected as many")
            container.expect_no_unhooked_functions()
        version = f"{found['driver'] // 1000}.{found['driver'] % 1000 // 10}"
        return f"{found['found']} lookups in a driver for CUDA {version}, all return hooks; unhooked_functions 0"

    def every_exported_abi_is_hooked():
        unknown = kit.run([kit.program("addresses")])["unknown"]
        expect(not unknown, f"the driver exports these symbols, which the shim does not hook: {', '.join(unknown)}")

    kit.check("addresses", "dlsym and cuGetProcAddress return the shim's hooks", every_lookup_returns_a_hook)
    kit.check("addresses", "every exported ABI of a hooked function is hooked", every_exported_abi_is_hooked)
