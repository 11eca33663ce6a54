import { Counter, Gauge, type Registry } from "prom-client";

/** How many approvals there are; of those that are over, all that there ever were. */
export interface ApprovalMetrics {
  readonly pending: number;
  readonly approved: number;
  readonly denied: number;
  readonly expired: number;
  readonly used: number;
  readonly void: number;
}

/** All processes know the same numbers, so that of several the highest counts. */
export function registerApprovals(
  register: Registry,
  count: () => Promise<ApprovalMetrics | undefined>,
): void {
  let last: ApprovalMetrics = { pending: 0, approved: 0, denied: 0, expired: 0, used: 0, void: 0 };
  // Those that cannot be read must not take all other metrics away, or start anew at 0.
  const read = async () => {
    last = (await count().catch(() => undefined)) ?? last;
    return last;
  };
  new Gauge({
    name: "gatehouse_approvals_pending",
    help: "Approvals that wait to be decided",
    aggregator: "max",
    registers: [register],
    async collect() {
      this.set((await read()).pending);
    },
  });
  new Counter({
    name: "gatehouse_approvals_total",
    help: "Approvals by what became of them",
    labelNames: ["outcome"],
    aggregator: "max",
    registers: [register],
    async collect() {
      const { pending: _, ...outcomes } = await read();
      this.reset();
      for (const [outcome, total] of Object.entries(outcomes)) this.inc({ outcome }, total);
    },
  });
}
