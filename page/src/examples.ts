/** Documents to start from. All were written for this page. */

import { diary } from './diary'

export interface Example {
  name: string
  /** Name of the model it is for. */
  model: string
  text: () => string
}

const REVIEW = `I went in expecting very little from this one, having been burned by the trailers before, and for the first twenty
minutes my worst fears were confirmed: two strangers meet on a night train, the dialogue limps along, and the camera
cannot decide whom it loves. Then the train stops in the snow, and the film becomes something else entirely. What
follows is a quiet, wonderful chamber piece about what people say when they believe they will never meet again. The
older of the two leads is superb; there is a scene with a broken watch and a cup of cold tea that says more about
regret than whole seasons of television. Some will find it slow, and the subplot with the conductor could have been cut
without loss, but these are small complaints about a beautiful and generous film.`

const SPEECH = `Mr. President, I bring you the greetings of the people of our islands, and our congratulations on your election to
guide this Assembly.

We meet three weeks after a hurricane crossed our part of the Caribbean Sea. It took eleven hours to destroy what two
generations had built: four of every five roofs, the harbour, the hospital, and the banana crop from which a third of
our families live. We thank our sister countries of the Caribbean Community, who sent ships before we could ask.

We did not cause the warming of the sea, yet we borrow to repair its damage. When a small island developing State has
a middle income on paper, it loses its access to concessional finance in the very year in which it needs it. Our debt is
now larger than our economy, and more than half of it was taken on after storms. We ask the international financial
institutions for a measure of vulnerability in place of income per head, and for clauses that suspend payments after a
disaster.

Tourism brings two thirds of our foreign exchange. When the airport closed, the hotels closed, and the teachers could
not be paid. That is why we speak of oceans, of coral reefs and of fish at every session: they are not scenery, they are
our industry.

Mr. President, our young people do not want to leave. They want electricity from the sun and the heat of our volcanoes,
schools that stand in the wind, and a voice in the decisions that are taken here. One people, one sea: let this Assembly
show that the smallest of its Members can count on the law, and on one another.

I thank you.`

const ARGUMENT = `We will hear argument in the case of a telephone that was taken at the roadside. Counsel, you may begin.

Thank you, and may it please the Court. The officer stopped my client for a broken tail light. He arrested him for
driving without a licence, took the telephone from his pocket, and read eleven months of messages before anyone asked a
judge for a warrant. The Fourth Amendment does not allow a search without a warrant merely because it follows an arrest.

Counsel, the police may search a wallet in the pocket of a person under arrest. Why is a telephone different?

Because a wallet holds a wallet's worth, Your Honor. The search incident to arrest protects the officer and preserves
the evidence. A telephone in the officer's hand threatens nobody, and once it is switched off, nothing in it can be
destroyed while a magistrate is called.

Suppose the officer had probable cause to believe that an accomplice was on the way, with a weapon.

Then the exigent circumstances would justify a search for that message, and no more. The record has no such emergency.
The officer testified at the suppression hearing that he was curious.

If we agree, must the conviction be reversed? The jury also heard two witnesses and saw the pistol.

The pistol was found because of the messages. It is the fruit of the search, and the State has never argued that it
would have been discovered anyway. The error was not harmless: without the pistol, there was no charge of possession,
and the sentence would have ended three years ago.

Thank you, counsel. The case is submitted.`

/** Join the lines of each paragraph. */
function unwrap(text: string): string {
  return text.replace(/(?<!\n)\n(?!\n)/g, ' ')
}

export const EXAMPLES: Example[] = [
  { name: 'a film review', model: 'imdb-s3', text: () => unwrap(REVIEW) },
  { name: 'a festival diary of 100 KB', model: 'imdb-s3', text: diary },
  { name: 'a speech to the United Nations', model: 'un-debate', text: () => unwrap(SPEECH) },
  { name: 'an argument in court', model: 'scotus', text: () => unwrap(ARGUMENT) },
]

export const QUERY = `Phrase-based statistical machine translation with lattice reordering. We extend a phrase-based translation decoder so that it reads word lattices. The lattice holds several orders of the source words, weighted by a source-side language model over part-of-speech tags. On German to English newspaper text the translation score improves by 0.7 BLEU over a decoder with distance-based reordering.`

export const DOCUMENTS = [
  'Dependency parsing with a shift-reduce automaton. We describe a deterministic parser for labelled dependency trees. A support vector machine chooses the next transition from features of the stack and the input. The parser runs in linear time and reaches a labelled attachment score of 86 percent on the Swedish treebank.',
  'A word alignment model for statistical machine translation. Word alignments between source and target sentences are estimated with a hidden Markov model whose transitions depend on the jump width. The alignments are used to extract phrase pairs for a phrase-based decoder; translation quality in BLEU improves on the Hansards.',
  'Collecting a spoken dialogue corpus for restaurant search. Callers talked to a telephone system that looks up restaurants. We transcribed 1,500 dialogues and annotated the user acts. Speech recognition errors are the main cause of failed dialogues.',
  'Minimum error rate training of a log-linear translation model. The weights of the feature functions are tuned so that the BLEU score of the best translation on a development set is highest. A line search over piecewise constant error surfaces finds them without gradients.',
  'Unsupervised induction of word senses from contexts. Occurrences of an ambiguous noun are clustered by the words around them. On a sample of forty nouns the clusters agree with the senses of a dictionary better than the most frequent sense does.',
  'Reordering the source sentence before translation. Rules over the parse tree of a German sentence move its verbs to the places that they have in English. A phrase-based system that translates the reordered sentences gains 1.2 BLEU, and its sentences are judged more fluent.',
  'Named entity recognition in biomedical abstracts with conditional random fields. Orthographic features and lists of genes are combined. The system finds names of proteins with an F-score of 74 on the shared task data.',
  'Automatic summarization of meetings by extraction. Sentences of transcribed meetings are ranked by prosodic and lexical features. Human judges prefer the summaries to those of a baseline that takes the longest turns.',
]
