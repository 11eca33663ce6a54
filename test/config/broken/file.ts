/** A broken configuration file and the one problem that it has. */
export interface Broken {
  text: string;
  problem: string;
}

/** One key of a section, each value with what the message says was found. */
export function key(section: string, name: string, allowed: string, values: string[]): Broken[] {
  return values.map((value) => ({
    text: `[${section}]\n${name} = ${value}\n`,
    problem: `gateway.toml:2: ${section}.${name}: found ${value}; allowed: ${allowed}`,
  }));
}

/** The same for the elements of an array, whose first one is fine. */
export function element(
  section: string,
  name: string,
  good: string,
  allowed: string,
  values: string[],
) {
  return values.map((value) => ({
    text: `[${section}]\n${name} = [\n  "${good}",\n  ${value},\n]\n`,
    problem: `gateway.toml:2: ${section}.${name}[1]: found ${value}; allowed: ${allowed}`,
  }));
}

/** Words of kinds that several keys share. */
export const seconds = "a whole number from 1 to 86400";
export const header =
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself";
