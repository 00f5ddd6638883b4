"""Define `resume_stream`: a stream of text whose step resumes after a death, or starts clean.

The step's progress is what has arrived: the text, its position in the stream, and whether it is
complete, always from one moment. The next attempt, in any life, does one of three things. The
consumer sees which before it gets a chunk:

    the answer is complete          no request is made           complete, resumed_from is all of it
    the provider resumes            only new text arrives        resumed_from is the earlier text
    the provider cannot resume      the text is empty again      restarted

A consumer that shows the text sets it to `text` at the beginning and appends from there. That is
right in all three cases.
"""

from outlast.streams.resumable import ResumableStream, resume_stream

__all__ = ["ResumableStream", "resume_stream"]
