from kit.installed import torch_command
from kit.shares import Shares, Tenant


def run(kit):
    measure = Shares(kit)

    def shares_hold(mode, tolerance):
        command = torch_command("torch_work.py", mode, measure.warm_up, measure.seconds)
        return measure.shares_hold([Tenant(30, command)], tolerance=max(tolerance, kit.arguments.tolerance), busy=False)

    for mode, name, tolerance in (("train", "a training step", 5), ("decode", "a decode loop", 10)):
        kit.check("pytorch", f"{name} limited to 30 % gets its share", shares_hold, mode, tolerance)
