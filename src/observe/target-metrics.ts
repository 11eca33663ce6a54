import { Gauge, type Registry } from "prom-client";

/** What one target of the upstream tells of itself. */
export interface TargetMetrics {
  /** As the configuration names it. */
  readonly name: string;
  /** Connections that carry a query. */
  readonly busy: number;
  /** True if queries go to it. */
  isUp(): Promise<boolean>;
}

/** Shows each target by its name; a single one is told of by the upstream's own metrics. */
export function registerTargets(register: Registry, targets: readonly TargetMetrics[]): void {
  if (targets.length < 2) return;
  const prefix = "gatehouse_upstream_target";
  new Gauge({
    name: `${prefix}_up`,
    help: "1 if the target of the upstream can be used, else 0",
    labelNames: ["target"],
    aggregator: "min",
    registers: [register],
    async collect() {
      const set = async (target: TargetMetrics) =>
        this.set({ target: target.name }, Number(await target.isUp()));
      await Promise.all(targets.map(set));
    },
  });
  new Gauge({
    name: `${prefix}_connections_busy`,
    help: "Connections to the target of the upstream in use",
    labelNames: ["target"],
    registers: [register],
    collect() {
      for (const { name, busy } of targets) this.set({ target: name }, busy);
    },
  });
}
