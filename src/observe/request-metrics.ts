import type { Counter, Registry } from "prom-client";
import { counter, gauge } from "./component-metrics.ts";
import { TimesHistogram } from "./time-histogram.ts";
import { TimesByLabel } from "./times.ts";

/** What is counted of a request that was answered. */
export interface CountedRequest {
  /** The route's pattern. */
  readonly route: string;
  readonly status: number;
  /** `allowed`, or the code of what refused it or went wrong. */
  readonly reason: string;
  /** Undefined if nothing was decided: on public routes, and where the gateway itself failed. */
  readonly decision: "allow" | "deny" | undefined;
  /** What was asked for: an operation's name, `Batch` if several, `none` if that was not known. */
  readonly operation: string;
  /** A user that has shown a good token. */
  readonly user: string | undefined;
  /** From the request's head to the end of its answer. */
  readonly seconds: number;
  /** From the request's head until it went up, or to the end if it did not. */
  readonly gatewaySeconds: number;
}

/**
 * Failures of the upstream: the codes of refusals, without what they have in common, and `error`
 * for an answer of its own with a status of 5xx.
 */
const upstreamFailures = ["unreachable", "broken", "timeout", "overloaded", "error"] as const;
const FAILURE_PREFIX = "upstream_";

/** The metrics of requests: plain numbers while nobody reads them. */
export class RequestMetrics {
  readonly #requests = new CountsByLabels("route", "status", "reason");
  readonly #decisions = new CountsByLabels("operation", "decision", "reason");
  readonly #failures = new Map<string, number>();
  readonly #users = new UserCounts();
  readonly #durations = new TimesByLabel();
  readonly #gatewayTimes = new TimesByLabel();
  #inFlight = 0;

  constructor(register: Registry) {
    this.#registerCounts(register);
    const duration = "Time from the head of a request to the end of its answer";
    const name = "gatehouse_request_duration_seconds";
    new TimesHistogram(register, name, duration, this.#durations, "route");
    const gatewayTime =
      "Time from the head of a request until it goes up, or is answered without that";
    const gatewayName = "gatehouse_request_gateway_seconds";
    new TimesHistogram(register, gatewayName, gatewayTime, this.#gatewayTimes, "route");
  }

  /** A request is served. */
  begin(): void {
    this.#inFlight++;
  }

  /** A request that was served is over. */
  end(): void {
    this.#inFlight--;
  }

  /** Counts a request that is over, also one that was never served. */
  count(request: CountedRequest): void {
    const { route, status, reason, decision, operation, user } = request;
    this.#requests.add(route, status, reason);
    this.#durations.add(route, request.seconds);
    this.#gatewayTimes.add(route, request.gatewaySeconds);
    if (reason.startsWith(FAILURE_PREFIX)) this.#fail(reason.slice(FAILURE_PREFIX.length));
    if (decision === undefined) return;
    if (decision === "allow" && reason === "allowed" && status >= 500) this.#fail("error");
    this.#decisions.add(operation, decision, decision === "allow" ? "allowed" : reason);
    if (user !== undefined) this.#users.add(user, decision);
  }

  /** Counts an answer of the upstream with a status of 5xx that is not the request's own answer. */
  upstreamError(): void {
    this.#fail("error");
  }

  #fail(kind: string): void {
    this.#failures.set(kind, (this.#failures.get(kind) ?? 0) + 1);
  }

  #registerCounts(register: Registry): void {
    const requests = "Requests answered, by route, status and reason";
    counter(register, "gatehouse_requests_total", requests, this.#requests.names, (total) =>
      this.#requests.moveTo(total),
    );
    const decisions = "Decisions on requests, by what was asked for and the rule that decided";
    counter(register, "gatehouse_decisions_total", decisions, this.#decisions.names, (total) =>
      this.#decisions.moveTo(total),
    );
    const failures = "Requests that failed at the upstream, by kind";
    counter(register, "gatehouse_upstream_failures_total", failures, ["kind"], (total) => {
      // Also those that have not happened, so that the first one is seen as a rise.
      for (const kind of upstreamFailures) total.inc({ kind }, this.#failures.get(kind) ?? 0);
      this.#failures.clear();
    });
    const users = "Decided requests by user, for a bounded number of users";
    counter(register, "gatehouse_user_requests_total", users, ["user", "decision"], (total) =>
      this.#users.moveTo(total),
    );
    const inFlight = "Requests that are served just now";
    gauge(register, "gatehouse_requests_in_flight", inFlight, () => this.#inFlight);
  }
}

type Names<Name> = readonly [Name, Name, Name];

/** How often the same labels came. */
interface Labelled {
  readonly first: string;
  readonly second: string | number;
  readonly third: string;
  count: number;
}

/** Counts by the values of three labels, few each; a counter learns of them when it is read. */
class CountsByLabels<Name extends string> {
  readonly #names: Names<Name>;
  readonly #counts = new Map<string, Labelled>();
  /** What was counted last: most of what comes is the same again. */
  #last: Labelled | undefined;

  constructor(...names: Names<Name>) {
    this.#names = names;
  }

  add(first: string, second: string | number, third: string): void {
    const last = this.#last;
    const isSame = last?.first === first && last.second === second && last.third === third;
    this.#last = isSame ? last : this.#find(first, second, third);
    this.#last.count++;
  }

  #find(first: string, second: string | number, third: string): Labelled {
    const key = `${first}\n${second}\n${third}`;
    let found = this.#counts.get(key);
    if (found === undefined) {
      found = { first, second, third, count: 0 };
      this.#counts.set(key, found);
    }
    return found;
  }

  /** Adds what was counted to `counter`, and begins anew. */
  moveTo(counter: Counter<Name>): void {
    for (const { first, second, third, count } of this.#counts.values()) {
      counter.labels(first, String(second), third).inc(count);
    }
    this.#counts.clear();
    this.#last = undefined;
  }

  /** The names of the labels, in the order of their values. */
  get names(): Name[] {
    return [...this.#names];
  }
}

/** Users that are counted by name; all others are counted together. */
export const NAMED_USERS = 200;
/** Those others. No user has that name: a username has no parenthesis. */
export const OTHER_USERS = "(other)";

/** Decisions on the requests of a user. */
interface Decided {
  allow: number;
  deny: number;
}

/** Counts the requests of users: by name of those that came first, up to a bound. */
class UserCounts {
  readonly #counts = new Map<string, Decided>();

  add(user: string, decision: "allow" | "deny"): void {
    const count = this.#counts.get(user) ?? this.#open(user);
    count[decision]++;
  }

  #open(user: string): Decided {
    const name = this.#counts.size < NAMED_USERS ? user : OTHER_USERS;
    const known = this.#counts.get(name);
    if (known !== undefined) return known;
    const count = { allow: 0, deny: 0 };
    this.#counts.set(name, count);
    return count;
  }

  /** Adds what was counted to `counter`, and begins anew with the same names. */
  moveTo(counter: Counter<"user" | "decision">): void {
    for (const [user, count] of this.#counts) {
      for (const decision of ["allow", "deny"] as const) {
        if (count[decision] > 0) counter.inc({ user, decision }, count[decision]);
        count[decision] = 0;
      }
    }
  }
}
