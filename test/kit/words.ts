/** The words of a text, for a list that would be a long column. */
export function words(text: string): string[] {
  return text.trim().split(/\s+/);
}
