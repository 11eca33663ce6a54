/** Metrics that others keep for themselves, as plain numbers, and that are read from them. */
import { Counter, Gauge, type Registry } from "prom-client";
import { type Times, TimesHistogram } from "./histogram.ts";

/** What the way to the upstream tells of itself. */
export interface UpstreamMetrics {
  /** Connections that carry a query. */
  readonly busy: number;
  /** How many queries wait for a connection. */
  readonly waiting: number;
  /** How long queries waited that had to. */
  readonly waits: Times;
  /** From sending a query up to the head of its answer. */
  readonly answers: Times;
  /** Answers that broke off after their head had gone out. */
  readonly cut: number;
}

/** What the queue of hashes tells of itself. */
export interface HashMetrics {
  readonly running: number;
  readonly waiting: number;
  /** How long one hash took. */
  readonly times: Times;
}

/** What becomes of login tokens that are shown. */
export interface TokenMetrics {
  /** Known from before, so that no signature was verified. */
  readonly remembered: number;
  readonly verified: number;
  readonly refused: number;
}

function gauge(register: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [register],
    collect() {
      this.set(read());
    },
  });
}

/** @param isUp finds out whether the upstream, or the database behind the engine, answers */
export function registerUpstream(
  register: Registry,
  metrics: UpstreamMetrics,
  isUp: () => Promise<boolean>,
): void {
  const prefix = "gatehouse_upstream";
  gauge(register, `${prefix}_connections_busy`, "Connections to the upstream in use", () => {
    return metrics.busy;
  });
  gauge(register, `${prefix}_queries_waiting`, "Queries that wait for a connection", () => {
    return metrics.waiting;
  });
  new TimesHistogram(
    {
      name: `${prefix}_wait_seconds`,
      help: "Time that queries waited for a connection, of those that had to",
      register,
    },
    metrics.waits,
  );
  new TimesHistogram(
    {
      name: `${prefix}_answer_seconds`,
      help: "Time from sending a query up to the head of its answer",
      register,
    },
    metrics.answers,
  );
  new Counter({
    name: `${prefix}_answers_cut_total`,
    help: "Answers of the upstream that broke off after they had begun",
    registers: [register],
    collect() {
      this.reset();
      this.inc(metrics.cut);
    },
  });
  new Gauge({
    name: `${prefix}_up`,
    help: "1 if the database answers, else 0",
    aggregator: "min",
    registers: [register],
    async collect() {
      this.set(Number(await isUp()));
    },
  });
}

export function registerHashing(register: Registry, metrics: HashMetrics): void {
  gauge(register, "gatehouse_hashes_running", "Logins that are being hashed for", () => {
    return metrics.running;
  });
  gauge(register, "gatehouse_hashes_waiting", "Logins that wait for their turn to hash", () => {
    return metrics.waiting;
  });
  const name = "gatehouse_hash_seconds";
  new TimesHistogram({ name, help: "Time that one password hash took", register }, metrics.times);
}

export function registerTokens(register: Registry, metrics: TokenMetrics): void {
  new Counter({
    name: "gatehouse_token_checks_total",
    help: "Login tokens that were shown, by what it took to tell whether they are good",
    labelNames: ["result"],
    registers: [register],
    collect() {
      const { remembered, verified, refused } = metrics;
      this.reset();
      for (const [result, count] of Object.entries({ remembered, verified, refused })) {
        this.inc({ result }, count);
      }
    },
  });
}
