"""`report.html` and `predictions.csv`: what a person looks at after training and evaluation."""
