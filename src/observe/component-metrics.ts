/** Metrics that others keep for themselves, as plain numbers, and that are read from them. */
import { Counter, Gauge, type Registry } from "prom-client";
import { TimesHistogram } from "./time-histogram.ts";
import type { Times } from "./times.ts";

/** What is told of the certificate that TLS is spoken with. */
export interface CertificateMetrics {
  /** One was put in force. */
  onLoad(certificate: { readonly expires: Date }): void;
  /** The files could not be used. */
  onFailure(): void;
}

/** A gauge that is set. Of several processes the least counts. */
export function leastGauge(register: Registry, name: string, help: string): Gauge {
  return new Gauge({ name, help, aggregator: "min", registers: [register] });
}

export function registerCertificate(register: Registry): CertificateMetrics {
  const prefix = "gatehouse_tls_certificate";
  const until = "When the TLS certificate in force expires, in seconds since 1970";
  const expiry = leastGauge(register, `${prefix}_expiry_seconds`, until);
  const inForce =
    "1 if the TLS certificate on disk is the one in force, 0 if the last good one is kept";
  const isGood = leastGauge(register, `${prefix}_last_reload_successful`, inForce);
  return {
    onLoad({ expires }) {
      expiry.set(expires.getTime() / 1000);
      isGood.set(1);
    },
    onFailure() {
      isGood.set(0);
    },
  };
}

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

/** A counter that learns what was counted when it is read. */
export function counter<Label extends string>(
  register: Registry,
  name: string,
  help: string,
  labelNames: Label[],
  collect: (counter: Counter<Label>) => void,
): void {
  new Counter({
    ...{ name, help, labelNames, registers: [register] },
    collect() {
      collect(this);
    },
  });
}

/** A gauge that looks when it is read. */
export function gauge(register: Registry, name: string, help: string, read: () => number): void {
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
  const waits = "Time that queries waited for a connection, of those that had to";
  new TimesHistogram(register, `${prefix}_wait_seconds`, waits, metrics.waits);
  const answers = "Time from sending a query up to the head of its answer";
  new TimesHistogram(register, `${prefix}_answer_seconds`, answers, metrics.answers);
  const cut = "Answers of the upstream that broke off after they had begun";
  counter(register, `${prefix}_answers_cut_total`, cut, [], (total) => {
    total.reset();
    total.inc(metrics.cut);
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
  const took = "Time that one password hash took";
  new TimesHistogram(register, "gatehouse_hash_seconds", took, metrics.times);
}

export function registerTokens(register: Registry, metrics: TokenMetrics): void {
  const help = "Login tokens that were shown, by what it took to tell whether they are good";
  counter(register, "gatehouse_token_checks_total", help, ["result"], (total) => {
    const { remembered, verified, refused } = metrics;
    total.reset();
    for (const [result, count] of Object.entries({ remembered, verified, refused })) {
      total.inc({ result }, count);
    }
  });
}

/** What a replica tells of the store that it shares with others. */
export interface StoreMetrics {
  /** Milliseconds since the last good poll was sent. */
  readonly leaseAge: number;
  readonly appliedVersion: number;
  /** Versions that the store was ahead at the last poll. */
  readonly lag: number;
  /** True if the last poll was a good one. */
  readonly isReached: boolean;
}

/** Shows how well a replica knows what it shares; of several processes the worst counts. */
export function registerStore(register: Registry, metrics: StoreMetrics): void {
  const show = (name: string, help: string, aggregator: "min" | "max", value: () => number) =>
    new Gauge({
      name: `gatehouse_store_${name}`,
      help,
      aggregator,
      registers: [register],
      collect() {
        this.set(value());
      },
    });
  const age =
    "Seconds since the replica sent its last good poll; it decides nothing past store.max_staleness";
  show("lease_age_seconds", age, "max", () => metrics.leaseAge / 1000);
  const applied = "Version of the store that the replica has applied";
  show("applied_version", applied, "min", () => metrics.appliedVersion);
  const lag = "Versions that the store was ahead of the replica at its last poll";
  show("lag_versions", lag, "max", () => metrics.lag);
  const reached = "1 if the last poll of the store was a good one, else 0";
  show("reached", reached, "min", () => Number(metrics.isReached));
}
