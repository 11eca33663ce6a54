/** A JSON number that a double would write otherwise, kept as it came. */
export class ExactNumber {
  /** The number's JSON text. */
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}
