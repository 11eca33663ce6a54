import type { Counter } from "prom-client";

/** What tells the counted requests apart. */
export interface RequestLabels {
  readonly route: string;
  readonly status: number;
  readonly reason: string;
}

/** Counts requests by their labels; the counter learns of them when it is read. */
export class RequestCounts {
  /** By route, status and reason, all of them few. */
  readonly #counts = new Map<string, Map<number, Map<string, number>>>();

  add({ route, status, reason }: RequestLabels): void {
    const byStatus = this.#counts.get(route) ?? this.#open(route);
    let byReason = byStatus.get(status);
    if (byReason === undefined) {
      byReason = new Map();
      byStatus.set(status, byReason);
    }
    byReason.set(reason, (byReason.get(reason) ?? 0) + 1);
  }

  #open(route: string): Map<number, Map<string, number>> {
    const byStatus = new Map<number, Map<string, number>>();
    this.#counts.set(route, byStatus);
    return byStatus;
  }

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<keyof RequestLabels>): void {
    for (const [route, byStatus] of this.#counts) {
      for (const [status, byReason] of byStatus) {
        for (const [reason, count] of byReason) counter.inc({ route, status, reason }, count);
      }
    }
    this.#counts.clear();
  }
}
