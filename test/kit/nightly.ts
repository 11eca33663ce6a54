/** Options of a test that only `npm run test:nightly` runs. */
const isNightly = process.env.GATEHOUSE_NIGHTLY === "1";

export const nightly = { skip: isNightly ? false : "npm run test:nightly" } as const;

/** All items in the nightly tests; otherwise the first and every third after it. */
export function sampled<T>(items: readonly T[]): readonly T[] {
  return isNightly ? items : items.filter((_, at) => at % 3 === 0);
}

export function caseCount(eachCommit: number, eachNight: number): number {
  return isNightly ? eachNight : eachCommit;
}
