import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { bounds, Times, type TimesByLabel } from "./times.ts";

/**
 * Shows `Times` to Prometheus. An observation in prom-client's histogram costs as much as all other
 * metrics of a request, so this one is only read.
 */
export class TimesHistogram extends Histogram<string> {
  readonly #names: { readonly name: string; readonly help: string };
  readonly #times: () => Iterable<[labels: Readonly<Record<string, string>>, times: Times]>;

  /** @param label set if the times are kept by the values of one label */
  constructor(
    register: Registry,
    name: string,
    help: string,
    times: Times | TimesByLabel,
    label = "",
  ) {
    super({ name, help, buckets: bounds, registers: [register] });
    this.#names = { name, help };
    this.#times = () =>
      times instanceof Times
        ? [[{}, times]]
        : Array.from(times, ([value, each]) => [{ [label]: value }, each]);
  }

  /** Returns what prom-client's own histogram returns; a test compares the two. */
  async getForPromString() {
    const { name, help } = this.#names;
    const values = Array.from(this.#times(), ([sharedLabels, times]) => {
      const counts = times.cumulated();
      const [, all = 0] = counts.at(-1) ?? [];
      const buckets = counts.map(([le, value]) => ({ suffix: "bucket", labels: { le }, value }));
      const totals = [
        { suffix: "sum", labels: {}, value: times.sum },
        { suffix: "count", labels: {}, value: all },
      ];
      return [...buckets, ...totals].map(({ suffix, labels, value }) => ({
        ...{ metricName: `${name}_${suffix}`, labels, sharedLabels, value },
      }));
    });
    return { name, help, type: "histogram", aggregator: "sum", values: values.flat() };
  }
}

interface CertificateMetrics {
  onLoad(certificate: { readonly expires: Date }): void;
  onFailure(): void;
}

/** A gauge for which the lowest value of several processes counts. */
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

export interface TargetMetrics {
  /** The name in the configuration. */
  readonly name: string;
  /** Connections with a query in flight. */
  readonly busy: number;
  /** True if queries are sent to it. */
  isUp(): Promise<boolean>;
}

/** Registers metrics per target. A single target has only the upstream's own metrics. */
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

export interface UpstreamMetrics {
  /** Connections with a query in flight. */
  readonly busy: number;
  readonly waiting: number;
  /** Only queries that had to wait for a connection. */
  readonly waits: Times;
  /** From sending a query upstream to the head of its response. */
  readonly answers: Times;
  /** Responses that broke off after their head had been sent to the client. */
  readonly cut: number;
}

export interface HashMetrics {
  readonly running: number;
  readonly waiting: number;
  readonly times: Times;
}

/** Outcomes of verifying login tokens. */
export interface TokenMetrics {
  /** Already verified, so the signature was not checked again. */
  readonly remembered: number;
  readonly verified: number;
  readonly refused: number;
}

/** A counter that collects its value when it is read. */
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

/**
 * A gauge that collects its value when it is read.
 *
 * @param aggregator how the values of several processes are combined
 */
export function gauge(
  register: Registry,
  name: string,
  help: string,
  read: () => number | Promise<number>,
  aggregator: "sum" | "min" | "max" = "sum",
): void {
  new Gauge({
    ...{ name, help, aggregator, registers: [register] },
    async collect() {
      this.set(await read());
    },
  });
}

/** @param isUp whether the upstream, or the engine's database, answers */
export function registerUpstream(
  register: Registry,
  metrics: UpstreamMetrics,
  isUp: () => Promise<boolean>,
): void {
  const prefix = "gatehouse_upstream";
  const busy = "Connections to the upstream in use";
  gauge(register, `${prefix}_connections_busy`, busy, () => metrics.busy);
  const waiting = "Queries that wait for a connection";
  gauge(register, `${prefix}_queries_waiting`, waiting, () => metrics.waiting);
  const waits = "Time that queries waited for a connection, of those that had to";
  new TimesHistogram(register, `${prefix}_wait_seconds`, waits, metrics.waits);
  const answers = "Time from sending a query up to the head of its answer";
  new TimesHistogram(register, `${prefix}_answer_seconds`, answers, metrics.answers);
  const cut = "Answers of the upstream that broke off after they had begun";
  counter(register, `${prefix}_answers_cut_total`, cut, [], (total) => {
    total.reset();
    total.inc(metrics.cut);
  });
  const up = "1 if the database answers, else 0";
  gauge(register, `${prefix}_up`, up, async () => Number(await isUp()), "min");
}

export function registerHashing(register: Registry, metrics: HashMetrics): void {
  const running = "Logins that are being hashed for";
  gauge(register, "gatehouse_hashes_running", running, () => metrics.running);
  const waiting = "Logins that wait for their turn to hash";
  gauge(register, "gatehouse_hashes_waiting", waiting, () => metrics.waiting);
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

/** The result of the last key fetch of each external issuer, by its prefix. */
export type IssuerStates = Readonly<Record<string, "ok" | "unreachable" | "unused">>;

/** Shows issuers after their first fetch. The worst state of several processes counts. */
export function registerIssuers(register: Registry, states: () => IssuerStates): void {
  new Gauge({
    name: "gatehouse_issuer_reachable",
    help: "1 if the last fetch of the external issuer's keys succeeded, else 0",
    labelNames: ["issuer"],
    aggregator: "min",
    registers: [register],
    collect() {
      for (const [issuer, state] of Object.entries(states())) {
        if (state !== "unused") this.set({ issuer }, Number(state === "ok"));
      }
    },
  });
}

export interface StoreMetrics {
  /** Milliseconds since the last successful poll was sent. */
  readonly leaseAge: number;
  readonly appliedVersion: number;
  /** Versions by which this replica was behind the store at the last poll. */
  readonly lag: number;
  /** True if the last poll succeeded. */
  readonly isReached: boolean;
}

/** The worst value of several processes counts. */
export function registerStore(register: Registry, metrics: StoreMetrics): void {
  const prefix = "gatehouse_store";
  const age =
    "Seconds since the replica sent its last good poll; it decides nothing past store.max_staleness";
  gauge(register, `${prefix}_lease_age_seconds`, age, () => metrics.leaseAge / 1000, "max");
  const applied = "Version of the store that the replica has applied";
  gauge(register, `${prefix}_applied_version`, applied, () => metrics.appliedVersion, "min");
  const lag = "Versions that the store was ahead of the replica at its last poll";
  gauge(register, `${prefix}_lag_versions`, lag, () => metrics.lag, "max");
  const reached = "1 if the last poll of the store was a good one, else 0";
  gauge(register, `${prefix}_reached`, reached, () => Number(metrics.isReached), "min");
}
