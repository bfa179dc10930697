"""Run the demo; signals are handled before anything slow is imported."""

from .stopping import Stopped, arm


def _run() -> int:
    arm()
    try:
        from .demo import main

        return main()
    except Stopped as stopped:
        print(f"{stopped}; nothing is left behind")
        return stopped.exit_code


if __name__ == "__main__":
    raise SystemExit(_run())
